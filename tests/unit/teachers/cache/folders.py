"""A folder of cached logits for tests; as a program, it writes a folder slowly, to be killed.

python -m tests.unit.teachers.cache.folders FOLDER
"""

import sys
from pathlib import Path

import numpy as np

from tests.unit.teachers.cache.distributions import rows, skewed
from understudy.teachers.cache.codec import decode, encode
from understudy.teachers.cache.parts import begin, finish, missing, write_part
from understudy.teachers.cache.sparse import Sparse, kl, nucleus
from understudy.teachers.cache.tables import Tables

EXAMPLES, EXAMPLES_PER_PART = 23, 5
COUNTS = np.random.default_rng(3).integers(0, 12, EXAMPLES)
COUNTS[4] = 0
FIRSTS = np.append(0, np.cumsum(COUNTS))
LOG_PROBS = skewed(int(COUNTS.sum()), 400)
SPARSE = nucleus(LOG_PROBS, 0.7, 12)
TABLES = Tables.fit([SPARSE])
FACTS = {"teacher": "sha256:12", "examples": "sha256:34", "method": {"type": "nucleus", "mass": 0.7}}


def write(folder: Path, number: int) -> None:
    """Write one part."""
    first, end = number * EXAMPLES_PER_PART, min(EXAMPLES, (number + 1) * EXAMPLES_PER_PART)
    piece = slice(int(FIRSTS[first]), int(FIRSTS[end]))
    part = rows(SPARSE, piece)
    write_part(folder, number, COUNTS[first:end], part, TABLES, kl(LOG_PROBS[piece], part))


def write_all(folder: Path) -> None:
    """Write what is missing, and finish."""
    begin(folder, TABLES, EXAMPLES, EXAMPLES_PER_PART)
    for number in missing(folder):
        write(folder, number)
    finish(folder, FACTS)


def decoded() -> Sparse:
    """All positions, without files."""
    blob, lengths = encode(SPARSE, TABLES)
    return decode(blob, np.append(0, np.cumsum(lengths)), TABLES)


def contents(folder: Path) -> dict[str, bytes]:
    """All files by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    begin(target, TABLES, EXAMPLES, EXAMPLES_PER_PART)
    print("begun", flush=True)
    while True:  # over and over: a kill meets any moment of a write
        for part_number in range(len(missing(target)) or 5):
            write(target, part_number)
