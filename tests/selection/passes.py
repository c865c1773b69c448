"""The record of passes: for each test file the digest of everything it reached when it last passed.

A digest is of contents alone, so that a line of the record is true wherever these contents are: two branches' records
may be merged line by line. Only `python -m tests.selection` writes it, after whole files have passed.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.selection.reach import Reach, Tree

RECORD = ".ci/passes"
EVERYWHERE = ("pyproject.toml", "requirements-dev.lock", "requirements.lock", "tests/__init__.py", "tests/conftest.py")
"""Files that every test depends on."""
COMPUTED = tuple(
    f"src/understudy/{name}/"
    for name in ("train", "evaluate", "data", "models", "parallel", "objectives", "teachers", "tasks", "plan")
)
"""Code that computes in a pod: tests of ranks cover it, tests of a cluster cover the code that runs it."""
USED = ("agent", "cli", "jobs", "kube", "launch", "recipe", "registry", "runs", "store")
"""Code that the walk on KFP uses, covered by tests of ranks, registry and cluster. The walk covers the pipeline."""
LEFT_OUT = {
    "tests/cluster/": COMPUTED,
    "tests/kfp/": (*COMPUTED, *(f"src/understudy/{name}/" for name in USED), "server/"),
}
ALWAYS = (
    "tests/ranks/pipeline/test_recipes.py",
    "tests/ranks/parallel/test_apply.py",
    "tests/ranks/train/test_resume.py",
    "tests/ranks/faults/test_stops.py",
    "tests/registry/test_register.py",
    "tests/server/test_allowlist.py",
    "tests/cluster/test_one_node.py",
)
"""The fixed small set: run on every push, for any change. The unit tests are run whole beside it."""


def digests(root: Path, tests: Iterable[str]) -> dict[str, str]:
    """The digest of everything that each test file reaches, with Python's version and the locked libraries."""
    tree = Tree.of_git(root)
    reach, contents = Reach(tree), dict[str, str]()

    def content(name: str) -> str:
        if name not in contents:
            contents[name] = hashlib.sha256((root / name).read_bytes()).hexdigest()
        return contents[name]

    def digest(test: str) -> str:
        without = next((left for folder, left in LEFT_OUT.items() if test.startswith(folder)), ())
        names = {*reach.closure(test, without), *(name for name in EVERYWHERE if name in tree.files)}
        lines = [f"{sys.version_info.major}.{sys.version_info.minor}", *(f"{n} {content(n)}" for n in sorted(names))]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]

    return {test: digest(test) for test in tests}


def passed(root: Path) -> dict[str, str]:
    """The record; of a checkout without one, nothing."""
    path = root / RECORD
    lines = path.read_text().splitlines() if path.exists() else []
    return {test: digest for digest, test in (line.split() for line in lines)}


def record(root: Path, news: Mapping[str, str]) -> None:
    """Add passes; a test file that is gone leaves the record."""
    lines = {test: digest for test, digest in {**passed(root), **news}.items() if (root / test).exists()}
    (root / RECORD).write_text("".join(f"{lines[test]} {test}\n" for test in sorted(lines)))
