"""The step cache: the object of each finished step, by step key, in one small JSON file per step."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from understudy.errors import disk_errors
from understudy.store.files import read_json, write_json

FOLDER = "step-cache"
"""Below the store's folder, and below a remote cache's address."""


@dataclass(frozen=True)
class CachedStep:
    """A finished step: the parts of its key, the digest of its object, and its duration in seconds."""

    key: str
    step: str
    parts: Mapping[str, object]
    digest: str
    seconds: float
    at: float

    def encode(self) -> Mapping[str, object]:
        """The step as plain data."""
        return asdict(self)

    @staticmethod
    def decode(value: Any) -> "CachedStep | None":
        """The step in plain data; None if the data is invalid: the step is then done again."""
        try:
            return CachedStep(**value) if value else None
        except TypeError:
            return None


class StepCache:
    """The finished steps of one store, whether or not their objects are there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __iter__(self) -> Iterator[CachedStep]:
        steps = (CachedStep.decode(read_json(path)) for path in self.files())
        return (cached for cached in steps if cached)

    def files(self) -> list[Path]:
        """The files of all steps, damaged ones too; each is named by its step key."""
        return sorted(self._folder.glob("[0-9a-f]*.json"))

    def get(self, key: str) -> CachedStep | None:
        """The step of a key; None when there is none, or when its file is damaged."""
        return CachedStep.decode(read_json(self._path(key)))

    def put(self, cached: CachedStep) -> None:
        """Record a step, or replace the one of its key."""
        write_json(self._path(cached.key), cached.encode())

    def put_fenced(self, cached: CachedStep, folder: Path) -> None:
        """Record a step by a file that is written inside a lease's folder and renamed out of it.

        Raises:
            FileNotFoundError: the folder is gone: another holder has the lease, and nothing was written.
        """
        temporary = folder / "cached-step.json"
        write_json(temporary, cached.encode())
        os.rename(temporary, self._path(cached.key))

    def touch(self, key: str) -> None:
        """Record for gc that the step was used now."""
        path = self._path(key)
        with disk_errors(path):
            os.utime(path)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"
