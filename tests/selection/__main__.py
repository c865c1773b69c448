"""Runs the tests that a change reaches, and records those that pass.

python -m tests.selection [--every | --changed] [--list] [--jobs N] [unit] [ranks] [registry] [server] [cluster] [kfp]

A file runs if anything that it reaches is not as it was when it last passed. `unit` runs whole beside these, and of
the others a fixed small set; `--changed` leaves both out, `--every` runs all. `--list` prints the files and runs none.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests import ROOT
from tests.selection.passes import ALWAYS, digests, passed, record
from tests.selection.results import clean, skips, unexpected

FOLDERS = ("unit", "ranks", "registry", "server", "cluster", "kfp")


def main() -> int:
    """Pytest's exit code, or 1 where a test was skipped for a reason that .ci/skips does not list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", choices=[*FOLDERS, []], default=["unit", "ranks", "registry", "server"])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--every", dest="selection", action="store_const", const="every")
    group.add_argument("--changed", dest="selection", action="store_const", const="changed")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    before = digests(ROOT, files(options.folders))
    chosen = chosen_of(before, options.selection)
    if options.list:
        print(*chosen, sep="\n")
        return 0
    print(f"{len(chosen)} of {len(before)} test files: {counted(chosen)}", flush=True)
    # Pytest handles it and reports what failed so far; a parent that ended first would kill it.
    signal.signal(signal.SIGINT, lambda *_: None)
    return run(chosen, before, options.jobs) if chosen else 0


def files(folders: list[str]) -> list[str]:
    """The test files of some folders."""
    return [str(path.relative_to(ROOT)) for name in folders for path in (ROOT / "tests" / name).rglob("test_*.py")]


def chosen_of(current: dict[str, str], selection: str | None) -> list[str]:
    """The files to run, of those whose digests are given."""
    recorded = passed(ROOT)
    reached = {test for test, digest in current.items() if recorded.get(test) != digest}
    fixed = {test for test in current if test.startswith("tests/unit/") or test in ALWAYS}
    return sorted({"every": set(current), "changed": reached}.get(selection or "", reached | fixed))


def counted(tests: list[str]) -> str:
    """How many of each folder."""
    counts = Counter(test.split("/")[1] for test in tests)
    return ", ".join(f"{count} of {folder}" for folder, count in sorted(counts.items()))


def run(chosen: list[str], before: dict[str, str], jobs: int) -> int:
    """Run pytest on the files, judge its skips, and record what passed and was not changed meanwhile."""
    cluster = all(test.startswith(("tests/cluster/", "tests/kfp/")) for test in chosen)
    spread = [] if cluster else ["-n", str(jobs), "--dist", "loadgroup"]
    with tempfile.NamedTemporaryFile(suffix=".xml") as results:
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={results.name}", *spread]
        command += ["-m", "cluster and not full"] if cluster else []
        code = subprocess.run([*command, *chosen], cwd=ROOT, check=False).returncode
        outcomes = Path(results.name)
        print(skips(outcomes), flush=True)
        record(
            ROOT,
            {test: digest for test, digest in digests(ROOT, clean(outcomes, chosen)).items() if before[test] == digest},
        )
        reasons = unexpected(outcomes, ROOT / ".ci" / "skips")
    for reason in reasons:
        print(f"skipped, and .ci/skips does not allow it: {reason}", file=sys.stderr)
    return code or bool(reasons)


if __name__ == "__main__":
    sys.exit(main())
