"""A software bill of materials of the libraries in an image: CycloneDX 1.6, from the lock that it was installed from.

sbom.py LOCK IMAGE VERSION prints it. A lock allows several files of one version (a wheel for each platform, and the
source), and pip took one of them: their hashes are all there. Debian's packages of the base image are in no lock, and
not in here.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?==(?P<version>[^ ;\\]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> list[dict[str, Any]]:
    """What a lock with hashes pins, a component each."""
    starts = list(PINNED.finditer(lock))
    ends = [start.start() for start in starts[1:]] + [len(lock)]
    return [_component(it["name"], it["version"], lock[it.end() : end]) for it, end in zip(starts, ends, strict=True)]


def _component(name: str, version: str, rest: str) -> dict[str, Any]:
    url = f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{version}"
    hashes = [{"alg": "SHA-256", "content": value} for value in HASH.findall(rest)]
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url, "hashes": hashes}


def bill(lock: str, image: str, version: str) -> dict[str, Any]:
    """The bill of an image. The same lock gives the same bytes: it has no time and no serial number."""
    container = {"type": "container", "bom-ref": image, "name": image, "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": container},
        "components": components(lock),
    }


if __name__ == "__main__":
    print(json.dumps(bill(Path(sys.argv[1]).read_text(), sys.argv[2], sys.argv[3]), indent=1))
