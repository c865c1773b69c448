"""The server's app in several environments: one process imports it, which takes seconds, and forks for each."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FORKS = """
import json, os, sys
from understudy_server import app
_, code, environments = sys.argv
del sys.argv[1:]
for number, environment in enumerate(json.loads(environments)):
    if not os.fork():
        os.environ.update(environment)
        for name, stream in (("out", 1), ("error", 2)):
            os.dup2(os.open(f"{number}.{name}", os.O_CREAT | os.O_WRONLY), stream)
        exec(code)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def in_forks(
    code: str, environments: Sequence[dict[str, str]], folder: Path
) -> list["subprocess.CompletedProcess[str]"]:
    """Run code that uses `app` in each environment, added to this process's own; the finished processes."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS, code, json.dumps(environments)]
    codes = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split()
    outputs = [
        [(folder / f"{number}.{name}").read_text() for name in ("out", "error")] for number in range(len(environments))
    ]
    return [
        subprocess.CompletedProcess(code, int(status), *texts) for status, texts in zip(codes, outputs, strict=True)
    ]
