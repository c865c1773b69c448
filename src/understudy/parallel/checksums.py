"""Checksums of a checkpoint's files: a disk may give back other bytes than it got, or lose the end of a file."""

import json
import os
from pathlib import Path

from understudy.store.files import hash_file, read_json

SUMS = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of all files in a folder into one beside them, flushed to the disk."""
    sums = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
    with (folder / SUMS).open("w") as stream:
        stream.write(json.dumps(sums, indent=1))
        stream.flush()
        os.fsync(stream.fileno())


def is_damaged(folder: Path, part: int, parts: int) -> bool:
    """Whether a folder's files are others than were written.

    Args:
        folder: of a checkpoint.
        part: which of the files are read here: each of `parts` readers has a share.
        parts: how many share the work.
    """
    sums = read_json(folder / SUMS)
    try:
        if not isinstance(sums, dict) or {path.name for path in folder.iterdir()} != {SUMS, *sums}:
            return True
        return any(hash_file(folder / name) != sums[name] for name in sorted(sums)[part::parts])
    except OSError:  # a disk that cannot give the bytes at all
        return True
