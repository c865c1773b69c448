"""A change of a file that only its content and its ctime show."""

import os
from pathlib import Path


def rewrite_unseen(path: Path, content: bytes) -> None:
    """Change a file in place and set its times back: size, mtime and inode are unchanged."""
    stat = path.stat()
    assert len(content) == stat.st_size
    while path.stat().st_ctime_ns == stat.st_ctime_ns:  # the clock of a file system may tick slowly
        with path.open("r+b") as stream:
            stream.write(content)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    now = path.stat()
    assert (now.st_ino, now.st_size, now.st_mtime_ns) == (stat.st_ino, stat.st_size, stat.st_mtime_ns)
