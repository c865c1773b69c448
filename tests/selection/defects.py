"""Ten planted defects, one per area: is each found by the tests that a change of its file reaches?

python -m tests.selection.defects [AREA ...]

Each defect is put into a copy of the last commit, alone. The tests that reach its file run there until one fails: those
in folders of its name first, then other unit tests, then the rest, without a cluster. Prints a row for each.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import ROOT
from tests.selection.reach import Reach, Tree


@dataclass(frozen=True)
class Defect:
    """A text of a file, and the wrong one in its place."""

    area: str
    file: str
    right: str
    wrong: str


DEFECTS = (
    Defect("a lost fence", "src/understudy/store/lease.py", '.split(".")[0]) + 1', '.split(".")[0])'),
    Defect(
        "T squared missing",
        "src/understudy/objectives/logits.py",
        "loss = temperature**2 * terms",
        "loss = 1.0 * terms",
    ),
    Defect(
        "a gradient summed over ranks",
        "src/understudy/train/learning.py",
        ".gradient.size() * scale)",
        ".gradient.size() ** 2 * scale)",
    ),
    Defect(
        "a gate's rule inverted", "src/understudy/evaluate/gate.py", "passed = ratio <= most", "passed = ratio >= most"
    ),
    Defect(
        "a route open",
        "server/src/understudy_server/authentication.py",
        "if isinstance(account, Refusal):",
        "if False:",
    ),
    Defect("a manifest without limits", "manifests/base/cleanup.yaml", "limits: {memory: 256Mi}", ""),
    Defect("a wrong exit code", "src/understudy/errors.py", "exit_code = BAD_INPUT", "exit_code = FAILED"),
    Defect(
        "equal content on both sides",
        "src/understudy/data/split.py",
        "sides[id_] = max(split,",
        "sides[id_] = min(split,",
    ),
    Defect(
        "a failed job left behind",
        "src/understudy/launch/kubernetes/actions.py",
        "if outcome.exit_code != DONE:",
        "if False:",
    ),
    Defect("a key without inputs", "src/understudy/steps/step.py", '"inputs": dict(inputs)', '"inputs": {}'),
)


def main() -> int:
    """1 where a defect was not found."""
    missed = 0
    (ROOT / "build").mkdir(exist_ok=True)
    for defect in DEFECTS:
        if not sys.argv[1:] or defect.area in sys.argv[1:]:
            with TemporaryDirectory(dir=ROOT / "build") as folder:
                missed += not find(defect, Path(folder) / "checkout")
    return 1 if missed else 0


def find(defect: Defect, checkout: Path) -> bool:
    """Plant the defect in a copy, and run the tests that its file reaches until one fails."""
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", checkout, "HEAD"], cwd=ROOT, check=True)
    try:
        path = checkout / defect.file
        text = path.read_text()
        assert text.count(defect.right) == 1, f"{defect.file}: {defect.right!r} is not there once"
        path.write_text(text.replace(defect.right, defect.wrong))
        groups, start = selected(checkout, defect.file), time.monotonic()
        failures = (first_failure(checkout, group) for group in groups if group)
        failed = next((failure for failure in failures if failure), "NOT FOUND")
        count, seconds = sum(map(len, groups)), time.monotonic() - start
        print(f"| {defect.area} | `{defect.file}` | {count} | {seconds:.0f} s | {failed[:150]} |", flush=True)
        return failed != "NOT FOUND"
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)


def first_failure(checkout: Path, tests: list[str]) -> str:
    """Pytest's line about the first test that fails; empty where all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": f"{checkout}/src:{checkout}/server/src"}
    done = subprocess.run(command, cwd=checkout, env=environment, check=False, capture_output=True, text=True)
    return next((line for line in done.stdout.splitlines() if line.startswith("FAILED")), "")


def selected(checkout: Path, file: str) -> list[list[str]]:
    """The tests that reach a file: those in folders of its name, other unit tests, the rest."""
    tree = Tree.of_git(checkout)
    reach = Reach(tree)
    tests = [name for name in tree.files if name.startswith("tests/") and Path(name).name.startswith("test_")]
    reached = [name for name in tests if not name.startswith("tests/cluster/") and file in reach.closure(name)]
    near = {name for name in reached if set(Path(file).parent.parts) & set(Path(name).parts)}
    unit = {name for name in reached if "/unit/" in name}
    return [sorted(group) for group in (near, unit - near, set(reached) - near - unit)]


if __name__ == "__main__":
    sys.exit(main())
