"""Backups in a bucket: files by their SHA-256, and snapshots, which list the files of a moment by path.

A file is sent once, however many snapshots have it. A snapshot is written last: an existing one has all its files.
Nothing is encrypted here, and any account with write access to the bucket can change a backup. Files are hashed when
they are read, so damage is detected.
"""

import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from understudy.errors import InputError, UnderstudyError, disk_errors
from understudy.store.bucket import Bucket
from understudy.store.files import HEXADECIMAL, canonical, hash_file, sha256

SNAPSHOTS, FILES = "snapshots", "files"


@dataclass(frozen=True)
class Entry:
    """A file of a snapshot: its path, its size and SHA-256, and the last change that its source reported."""

    path: str
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=f"^{HEXADECIMAL.pattern}$")]
    changed: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The files backed up at a moment. `kind` is store or registry; `version` is the version of its layout."""

    name: str
    kind: str
    version: str
    made: float
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(entry.size for entry in self.entries)


_SNAPSHOT = TypeAdapter(Snapshot)


class Vault:
    """Storage for backups.

    Args:
        url: s3://BUCKET/PREFIX, or any other URL that fsspec supports.

    Raises:
        InputError: the URL is no address, or contains credentials.
    """

    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url)
        self.sent = 0
        """The bytes sent so far."""

    def add(self, source: Path, path: str, digest: str | None = None, changed: str = "") -> Entry:
        """Send a file that does not change meanwhile, unless the vault has its content."""
        entry = Entry(path, source.stat().st_size, digest or hash_file(source), changed)
        if not self.has(entry):
            self._bucket.put(source, _path(entry.sha256))
            self.sent += entry.size
        return entry

    def add_bytes(self, content: bytes, path: str) -> Entry:
        """Send the content of a small file, unless the vault has it."""
        entry = Entry(path, len(content), sha256(content))
        if not self.has(entry):
            self._bucket.write(_path(entry.sha256), content)
            self.sent += entry.size
        return entry

    def has(self, entry: Entry) -> bool:
        """Whether the vault has a file's content; its bytes are not read."""
        return self._bucket.size(_path(entry.sha256)) == entry.size

    def take(self, entry: Entry, target: Path) -> None:
        """Copy a file out of the vault.

        Raises:
            UnderstudyError: it is damaged there, or missing.
        """
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if self._bucket.get(_path(entry.sha256), target) and hash_file(target) == entry.sha256:
                return
            target.unlink(missing_ok=True)
        raise UnderstudyError(
            f"{self._bucket.url}: {_path(entry.sha256)}, which is {entry.path} of a snapshot, is damaged or missing. "
            "Take an older snapshot, or the bucket's own versions of that file"
        )

    def commit(self, kind: str, version: str, entries: Iterable[Entry]) -> Snapshot:
        """Write a snapshot of added files."""
        now = time.time()
        name = f"{kind}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"
        snapshot = Snapshot(name, kind, version, now, tuple(entries))
        self._bucket.write(f"{SNAPSHOTS}/{name}.json", canonical(asdict(snapshot)))
        return snapshot

    def names(self) -> list[str]:
        """The names of all snapshots, by kind, the oldest first."""
        listed = self._bucket.listed(SNAPSHOTS)
        return sorted(name.removesuffix(".json") for name in listed if name.endswith(".json"))

    def snapshot(self, name: str) -> Snapshot:
        """A snapshot by its name.

        Raises:
            InputError: there is none.
            UnderstudyError: it is not as understudy wrote it.
        """
        encoded = self._bucket.read(f"{SNAPSHOTS}/{name}.json")
        if encoded is None:
            names = ", ".join(self.names()[-5:]) or "none"
            raise InputError(f"{self._bucket.url}: there is no snapshot {name}; there is {names}")
        try:
            snapshot = _SNAPSHOT.validate_json(encoded, strict=True)
        except ValidationError as error:
            raise self.changed(name, "it is not a snapshot") from error
        paths = by_path(snapshot)
        if snapshot.name != name or len(paths) < len(snapshot.entries):
            raise self.changed(name, "its name differs, or it lists a file twice")
        for path in paths:
            if not is_inside(path):
                raise self.changed(name, f"a file is outside the folder, {path!r}")
        return snapshot

    def changed(self, name: str, reason: str) -> UnderstudyError:
        """The error for a snapshot that is not as understudy wrote it."""
        return UnderstudyError(
            f"{self._bucket.url}: {SNAPSHOTS}/{name}.json was changed or is damaged: {reason}. Take another snapshot, "
            "or the bucket's own versions of that file"
        )

    def newest(self, kind: str) -> Snapshot | None:
        """The newest snapshot of a kind; None where there is none."""
        names = [name for name in self.names() if name.startswith(f"{kind}-")]
        return self.snapshot(names[-1]) if names else None

    def verify(self, snapshot: Snapshot) -> None:
        """Read every byte of a snapshot.

        Raises:
            UnderstudyError: a file of it is damaged or missing.
        """
        with tempfile.TemporaryDirectory() as folder:
            for entry in snapshot.entries:
                target = Path(folder) / "file"
                self.take(entry, target)
                target.unlink()

    def forget(self, kind: str, before: float) -> int:
        """Remove a kind's snapshots from before a time, but never the newest, and the files that no other has.

        Only one process at a time may add to a vault or call this: a file that is added for a snapshot to come is in
        none yet.

        Returns:
            The number of snapshots removed.
        """
        names = self.names()
        candidates = [name for name in names if name.startswith(f"{kind}-")]
        old = [name for name in candidates[:-1] if self.snapshot(name).made < before]
        if not old:
            return 0
        remaining = [self.snapshot(name) for name in names if name not in old]
        needed = {_path(entry.sha256) for snapshot in remaining for entry in snapshot.entries}
        self._bucket.remove([f"{SNAPSHOTS}/{name}.json" for name in old])
        self._bucket.remove(
            [f"{FILES}/{name}" for name in self._bucket.listed(FILES) if f"{FILES}/{name}" not in needed]
        )
        return len(old)


def by_path(snapshot: Snapshot | None) -> Mapping[str, Entry]:
    """A snapshot's files by their paths; empty without a snapshot."""
    return {entry.path: entry for entry in (snapshot.entries if snapshot else ())}


def is_inside(name: str) -> bool:
    """Whether a file's name is a plain path below its folder."""
    path = PurePosixPath(name)
    strange = path.is_absolute() or ".." in path.parts or "\0" in name
    return bool(path.parts) and not strange and str(path) == name


def _path(digest: str) -> str:
    return f"{FILES}/{digest[:2]}/{digest}"
