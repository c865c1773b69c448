"""Tables of one GPU: losses, whole steps, evaluation, checkpoints; each row in a process of its own, as it is measured.

    python -m benchmarks.gpu [--only losses steps evaluation saving] [--tiny]

Liger (liger-kernel) and TRL are measured where they are installed. A table takes two to five minutes on an H200.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.gpu import evaluation, losses, saving, steps
from benchmarks.gpu.sizes import FULL, TINY, Sizes
from tests.ranks.plan.measured import text_examples
from understudy.models.describe import describe
from understudy.models.facts import Facts
from understudy.models.files import save_model
from understudy.recipe import ArchitectureModel

LIMIT = 100
"""Seconds of a row."""
TABLES = ("losses", "steps", "evaluation", "saving")


def write_teacher(sizes: Sizes, folder: Path) -> None:
    """A saved teacher, with weights of transformers' choice."""
    facts: Facts = {
        "task": "causal-lm",
        "vocab_size": sizes.vocabulary,
        "eos_id": 0,
        "sequence_length": sizes.length,
    }
    described = describe(ArchitectureModel(**sizes.teacher), facts, "teacher.model")
    (folder / "teacher").mkdir()
    torch.manual_seed(0)
    save_model(folder / "teacher", steps.net(sizes.teacher, sizes).state_dict(), described)


def rows(table: str, sizes: Sizes, folder: Path, name: str | None) -> Iterator[str]:
    """A table's lines, or that of one row."""
    if table == "losses":
        yield from losses.rows(sizes)
    elif table == "evaluation":
        yield from evaluation.rows(sizes, folder)
    elif table == "steps":
        assert name
        yield steps.row(name, sizes, folder)
    else:
        assert name
        yield saving.ROWS[name](sizes, folder)


def apart(table: str, folder: Path, name: str, *, tiny: bool) -> None:
    """Print a table, or one of its rows, measured by another process; why it failed, if it did."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--row", table, str(folder), name, *(["--tiny"] if tiny else [])]
    try:
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        print(f"| {name or table} | not done after {LIMIT} s |", flush=True)
        return
    if ended.returncode:
        print(f"| {name or table} | failed: {' '.join(ended.stderr.split())[-700:]} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--tiny", action="store_true", help="a toy on the CPU, to try the command")
    parser.add_argument("--row", nargs=3, metavar=("TABLE", "FOLDER", "NAME"), help="one row, where all is prepared")
    options = parser.parse_args()
    sizes = TINY if options.tiny else FULL
    if options.row:
        table, folder, name = options.row
        for line in rows(table, sizes, Path(folder), name):
            print(line, flush=True)
        return
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        text_examples(folder / "examples", sizes.vocabulary, sizes.length)
        write_teacher(sizes, folder)
        for table in options.only:
            names = {"steps": (steps.HEAD, *steps.ROWS), "saving": (saving.HEAD, *saving.ROWS)}.get(table)
            print(f"\n{names[0]}" if names else "", flush=True)
            for name in names[1:] if names else [""]:
                apart(table, folder, name, tiny=options.tiny)
    print(f"\n{time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
