"""One store: a folder with a version, its objects, its memo of finished steps, its leases and runs."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from understudy.errors import Fenced, InputError, disk_errors
from understudy.store import lease as leases
from understudy.store import runs
from understudy.store.files import Fingerprints, read_json, sha256, share, write_json
from understudy.store.lease import Lease
from understudy.store.objects import Objects
from understudy.store.runs import Run

VERSION = 1


@dataclass(frozen=True)
class Memo:
    """A finished step: what its key was made of, the object that it gave, and how long it took, in seconds."""

    key: str
    step: str
    parts: Mapping[str, Any]
    digest: str
    seconds: float
    at: float


class Store:
    """The shared volume. Several processes on several machines may use it at once."""

    def __init__(self, folder: Path, lease_seconds: float = 30.0) -> None:
        """Open a store, or make one where there is none.

        Raises:
            InputError: it has another version, or cannot be written.
        """
        self.folder = folder.absolute()
        self.lease_seconds = lease_seconds
        with disk_errors(self.folder):
            try:
                self.folder.parent.mkdir(parents=True, exist_ok=True)
            except FileNotFoundError as error:
                raise InputError(f"{self.folder}: cannot be made; point UNDERSTUDY_HOME or --home elsewhere") from error
            share(self.folder.parent)
            for part in ("objects", "memo", "work", "runs", "fingerprints"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
        self._check_version()
        self.fingerprints = Fingerprints(self.folder / "fingerprints")
        self.objects = Objects(self.folder / "objects", self.fingerprints)

    def _check_version(self) -> None:
        path = self.folder / "version.json"
        found = read_json(path)
        if found is None and path.exists():
            raise InputError(
                f'{path}: damaged; the store\'s objects may be whole: write {{"version": {VERSION}}} into it'
            )
        if found is None:
            write_json(path, {"version": VERSION})
        elif found["version"] != VERSION:
            raise InputError(
                f"{self.folder}: this store has version {found['version']}, this understudy writes version {VERSION}. "
                "Use the understudy that made it, or point UNDERSTUDY_HOME or --home at a new folder."
            )

    def recall(self, key: str, run: Run | None = None) -> Memo | None:
        """The memo of a finished step whose object is there and whole; None when the work is to be done.

        A damaged object is set aside here, so that it is made again. The run, if given, uses the object from now on,
        and is told of the damage.
        """
        path = self._memo_file(key)
        memo = _memo(path)
        if memo is None:
            return None
        if run:
            run.use(memo.digest)
        if not self.objects.path(memo.digest).exists():
            return None
        if damage := self.objects.damage(memo.digest):
            self.objects.set_aside(memo.digest)
            if run:
                run.note(f"damaged, so {memo.step} was done again: {damage[0]}")
            return None
        with disk_errors(path):
            os.utime(path)
        return memo

    def memos(self) -> list[Memo]:
        """All finished steps."""
        found = (_memo(path) for path in sorted((self.folder / "memo").glob("[0-9a-f]*.json")))
        return [memo for memo in found if memo]

    def memo(self, key: str) -> Memo | None:
        """What is remembered under a key, whether or not its object is there."""
        return _memo(self._memo_file(key))

    def remember(self, memo: Memo) -> None:
        """Take over what another store remembers, whose object is here already."""
        write_json(self._memo_file(memo.key), asdict(memo))

    def _memo_file(self, key: str) -> Path:
        return self.folder / "memo" / f"{key}.json"

    def acquire(self, key: str) -> Lease | None:
        """The lease on a step's work, or None while another run holds it."""
        return leases.acquire(self.folder / "work", key, self.lease_seconds)

    def wait_for(self, key: str, give_up: Callable[[], bool]) -> Lease | None:
        """The lease on a step's work as soon as it can be had; None when give_up() says so first."""
        return leases.wait_for(self.folder / "work", key, self.lease_seconds, give_up)

    def conclude(
        self,
        lease: Lease,
        step: str,
        parts: Mapping[str, Any],
        staged: Path,
        kind: str,
        inputs: Mapping[str, str],
        facts: Mapping[str, Any],
        seconds: float,
    ) -> str:
        """Publish a step's result, remember it, and end its lease.

        Raises:
            Fenced: the lease was lost; nothing was remembered.
        """
        key = lease.folder.parent.name
        try:
            digest = self.objects.publish(staged, kind, inputs, facts)
            memo = Memo(key, step, parts, digest, seconds, time.time())
            aside = lease.folder / "memo.json"
            write_json(aside, asdict(memo))
            os.rename(aside, self._memo_file(key))
        except FileNotFoundError as error:
            raise Fenced(f"{step}: another run has taken this step over; its result counts") from error
        lease.finish()
        return digest

    def remember_server(self, address: str) -> None:
        """Write down that models of this store are registered there; gc asks every such server."""
        with disk_errors(self.folder):
            (self.folder / "servers").mkdir(exist_ok=True)
        write_json(self.folder / "servers" / f"{sha256(address.encode())[:16]}.json", {"address": address})

    @property
    def servers(self) -> dict[str, Path]:
        """The servers that remember_server() was told, each with the file that says so."""
        files = sorted((self.folder / "servers").glob("[0-9a-f]*.json"))
        return {found["address"]: file for file in files if (found := read_json(file))}

    def create_run(self, name: str, recipe: dict[str, Any], tracking_uri: str, run_id: str | None = None) -> Run:
        """A new run's folder."""
        return runs.create(self.folder / "runs", name, recipe, tracking_uri, run_id)

    def run(self, run_id: str) -> Run:
        """A run by its id."""
        return Run(self.folder / "runs" / run_id)

    def runs(self) -> list[Run]:
        """All runs, the oldest first."""
        return list(runs.every(self.folder / "runs"))


def _memo(path: Path) -> Memo | None:
    """A memo; None when there is none, or when it is damaged: the step is then done again."""
    value = read_json(path)
    try:
        return Memo(**value) if value else None
    except TypeError:
        return None
