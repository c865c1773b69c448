"""Prints the tests that mirror what was changed: in the working tree, and in commits that BASE does not have.

python .ci/changed_tests.py BASE
"""

import subprocess
import sys
from pathlib import Path

PACKAGE, TESTS = Path("src/understudy"), Path("tests")
ALWAYS = ("tests/test_mirror.py", "tests/test_house.py", "tests/test_docs.py", "tests/recipe/test_sources.py")


def changed(base: str) -> set[Path]:
    """Files that differ from where this branch left the base, and those that git does not know yet."""
    known = (_merge_base(name) for name in (base, f"origin/{base}"))  # a fresh clone of a branch has no local base
    start = next((commit for commit in known if commit), None)
    if start is None:
        sys.exit(f"{base}: git knows no such branch; name the branch that you started from: make check BASE_BRANCH=...")
    found: set[Path] = set()
    for command in (["diff", "--name-only", start], ["ls-files", "--others", "--exclude-standard"]):
        listed = subprocess.run(["git", *command], capture_output=True, text=True, check=True).stdout
        found |= {Path(line) for line in listed.splitlines()}
    return found


def _merge_base(base: str) -> str:
    return subprocess.run(
        ["git", "merge-base", base, "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()


def mirror(path: Path) -> Path | None:
    """The test of a module, or where it has none of its own those of its folder; a changed test itself."""
    if path.suffix != ".py":
        return None
    if path.is_relative_to(TESTS / "cluster"):
        return None  # make test-cluster
    if path.is_relative_to(TESTS):
        return path if path.name.startswith("test_") else path.parent
    if path.is_relative_to(PACKAGE):
        inside = path.relative_to(PACKAGE)
        own = TESTS / inside.parent / f"test_{inside.name}"
        return own if own.exists() else own.parent
    if path.parts[0] in ("pipelines", "components"):
        return TESTS / "pipeline"
    return None


def main() -> None:
    """Print them, those that are there, on one line."""
    found = {test for path in changed(sys.argv[1]) if (test := mirror(path)) and test.exists() and test != TESTS}
    inner = {test for test in found if not found & set(test.parents)}
    print(*sorted({*map(str, inner), *ALWAYS}))


if __name__ == "__main__":
    main()
