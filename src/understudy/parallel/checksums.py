"""Checksums of a checkpoint's files: a disk may return other bytes than were written, or truncate a file."""

import json
import os
from pathlib import Path

from understudy.store.files import hash_file, read_json

SUMS = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of all files in a folder to checksums.json beside them, flushed to disk."""
    sums = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
    with (folder / SUMS).open("w") as stream:
        stream.write(json.dumps(sums, indent=1))
        stream.flush()
        os.fsync(stream.fileno())


def is_damaged(folder: Path, part: int, parts: int) -> bool:
    """Whether a folder's files differ from those written.

    Args:
        folder: a checkpoint's folder.
        part: index of this reader's share of the files.
        parts: number of readers.
    """
    sums = read_json(folder / SUMS)
    try:
        if not isinstance(sums, dict) or {path.name for path in folder.iterdir()} != {SUMS, *sums}:
            return True
        return any(hash_file(folder / name) != sums[name] for name in sorted(sums)[part::parts])
    except OSError:  # the disk cannot read the file at all
        return True
