"""Objects: immutable folders named by the SHA-256 of their manifest, which is written last."""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from understudy.errors import InputError, disk_errors
from understudy.store.files import Fingerprints, canonical, flush, hash_file, sha256

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """The description of an object: its kind, its files, the digests of its inputs, and small facts about it."""

    kind: str
    files: tuple[tuple[str, int, str], ...]
    inputs: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The canonical bytes whose SHA-256 names the object."""
        files = [{"path": path, "size": size, "sha256": digest} for path, size, digest in self.files]
        return canonical({"kind": self.kind, "files": files, "inputs": dict(self.inputs), "facts": dict(self.facts)})

    @staticmethod
    def decode(value: Mapping[str, Any]) -> "Manifest":
        """The manifest in a parsed manifest.json."""
        files = tuple((entry["path"], entry["size"], entry["sha256"]) for entry in value["files"])
        return Manifest(value["kind"], files, value["inputs"], value["facts"])

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size, _ in self.files)


class Objects:
    """The objects of one store."""

    def __init__(self, folder: Path, fingerprints: Fingerprints) -> None:
        self._folder = folder
        self._fingerprints = fingerprints

    def path(self, digest: str) -> Path:
        """The object's path, whether it exists or not."""
        return self._folder / digest[:2] / digest

    def manifest(self, digest: str) -> Manifest | None:
        """The object's manifest; None when there is no object of that digest, or its manifest was changed."""
        try:
            encoded = (self.path(digest) / MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Manifest.decode(json.loads(encoded)) if sha256(encoded) == digest else None

    def __iter__(self) -> Iterator[str]:
        return (path.name for path in sorted(self._folder.glob("??/*")))

    def resolve(self, prefix: str) -> str:
        """The only digest that begins with a prefix.

        Raises:
            InputError: none does, or more than one.
        """
        matches = [digest for digest in self if digest.startswith(prefix)]
        if len(matches) != 1:
            count = f"{len(matches)} objects begin" if matches else "no object begins"
            raise InputError(f"{prefix}: {count} so; understudy store ls lists them")
        return matches[0]

    def publish(
        self, staged: Path, kind: str, inputs: Mapping[str, str] | None = None, facts: Mapping[str, Any] | None = None
    ) -> str:
        """Turn a folder of finished files into an object: flush, write the manifest last, rename into place.

        The folder is gone afterwards. Publishing the same content twice gives the same digest; a damaged copy is
        replaced.

        Returns:
            The object's digest.
        """
        with disk_errors(self._folder):
            manifest = described(staged, kind, inputs or {}, facts or {})
            encoded = manifest.encode()
            digest = sha256(encoded)
            (staged / MANIFEST).write_bytes(encoded)
            # Files, then the folder that names them. A rename may reach the disk before the bytes do: after a power
            # loss the object would have its name and empty files.
            for path in [*staged.rglob("*"), staged]:
                flush(path)
            self._move(staged, digest)
        return digest

    def _move(self, staged: Path, digest: str) -> None:
        target = self.path(digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        while True:  # until an intact copy exists: another process may publish one, or a damaged copy may be set aside
            try:
                os.rename(staged, target)
                break
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # which one differs between file systems
                    raise
            if not self.damage(digest, thorough=True):
                os.utime(target)  # young again: gc leaves it alone until its step is in the step cache
                shutil.rmtree(staged)
                return
            self.set_aside(digest)
        flush(target.parent)
        flush(self._folder)

    def set_aside(self, digest: str) -> Path | None:
        """Move an object to the trash, where it stays until the next gc. None if it is gone."""
        trash = self._folder.parent / "trash" / f"{digest}.{secrets.token_hex(4)}"
        trash.parent.mkdir(exist_ok=True)
        try:
            os.rename(self.path(digest), trash)
        except FileNotFoundError:
            return None
        return trash

    def damage(self, digest: str, thorough: bool = False) -> list[str]:
        """The defects of an object, a line each; empty if it is intact.

        Args:
            digest: the object.
            thorough: read every byte; otherwise a file that was not touched since it was last read is trusted.
        """
        root = self.path(digest)
        manifest = self.manifest(digest)
        if manifest is None:
            return [f"{root / MANIFEST}: {'was changed' if (root / MANIFEST).exists() else 'is missing'}"]
        hashed = self._fingerprints.read if thorough else self._fingerprints.file
        checked = (
            (root / name, _damage(root / name, size, expected, hashed)) for name, size, expected in manifest.files
        )
        return [f"{path}: {defect}" for path, defect in checked if defect]


def described(folder: Path, kind: str, inputs: Mapping[str, str], facts: Mapping[str, Any]) -> Manifest:
    """The manifest of a folder's files, all of them read now."""
    files_below = (path for path in folder.rglob("*") if path.is_file())
    paths = sorted(path for path in files_below if path != folder / MANIFEST)
    files = tuple((path.relative_to(folder).as_posix(), path.stat().st_size, hash_file(path)) for path in paths)
    return Manifest(kind, files, inputs, facts)


def _damage(path: Path, size: int, expected: str, hashed: Callable[[Path], str]) -> str | None:
    try:
        actual = path.stat().st_size
        if actual != size:
            return f"has {actual} bytes, not {size}"
        return None if hashed(path) == expected else "was changed"
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return "is missing"
