"""Ten planted defects, one per area: is each found by the tests that a change of its file reaches?

python -m tests.selection.defects [AREA ...]

Each defect is put into a copy of the last commit, alone. The tests that its file reaches run there until the first one
fails: those of the file's own mirror first, then unit tests, then the others, without a cluster. Prints a row for each.
"""

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
        "T squared missing", "src/understudy/distill/logits.py", "loss = temperature**2 * terms", "loss = 1.0 * terms"
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
    Defect("a route open", "src/understudy/registry/server_app/door.py", "if isinstance(found, Refusal):", "if False:"),
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
    """Plant the defect in a copy, and run what its file reaches until something fails."""
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", checkout, "HEAD"], cwd=ROOT, check=True)
    try:
        path = checkout / defect.file
        text = path.read_text()
        assert text.count(defect.right) == 1, f"{defect.file}: {defect.right!r} is not there once"
        path.write_text(text.replace(defect.right, defect.wrong))
        tests = selected(checkout, defect.file)
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *tests]
        environment = {"PYTHONPATH": str(checkout / "src")}
        done = subprocess.run(["env", *map("=".join, environment.items()), *command], cwd=checkout, check=False,
                              capture_output=True, text=True)  # fmt: skip
        failed = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "NOT FOUND")
        seconds = time.monotonic() - start
        print(f"| {defect.area} | `{defect.file}` | {len(tests)} | {seconds:.0f} s | {failed[:150]} |", flush=True)
        return done.returncode == 1
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)


def selected(checkout: Path, file: str) -> list[str]:
    """The tests that reach a file, its mirror's folder first."""
    tree = Tree.of_git(checkout)
    reach = Reach(tree)
    tests = [name for name in tree.files if name.startswith("tests/") and Path(name).name.startswith("test_")]
    reached = [name for name in tests if not name.startswith("tests/cluster/") and file in reach.closure(name)]
    folders = set(Path(file).parent.parts)
    return sorted(reached, key=lambda name: (-len(folders & set(Path(name).parts)), "/unit/" not in name, name))


if __name__ == "__main__":
    sys.exit(main())
