import json
import re
import subprocess
import sys

import pytest

from tests import ROOT


@pytest.mark.parametrize(
    "lock", ["requirements.lock", "images/launcher/requirements.lock", "images/mlflow/requirements.lock"]
)
def test_the_bill_has_every_library_of_the_lock_with_its_hashes(lock: str) -> None:
    command = [sys.executable, "images/sbom.py", lock, "understudy-test", "1.2"]
    bill = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == (
        "understudy-test",
        "1.2",
    )
    text = (ROOT / lock).read_text()
    pinned = re.findall(r"^([^\s#=\[]+)(?:\[.*\])?==(\S+)", text, re.MULTILINE)
    assert [(it["name"], it["version"]) for it in bill["components"]] == pinned
    hashes = [value["content"] for it in bill["components"] for value in it["hashes"]]
    assert sorted(hashes) == sorted(re.findall("sha256:([0-9a-f]{64})", text))
    assert all(it["hashes"] and it["purl"].startswith("pkg:pypi/") for it in bill["components"])
