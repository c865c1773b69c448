"""The store: a folder with a version, objects, a step cache, leases and runs."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from understudy.errors import Fenced, InputError, disk_errors
from understudy.store import lease as leases
from understudy.store import runs, version
from understudy.store.files import Fingerprints, read_json, sha256, share, write_json
from understudy.store.judged import Judged
from understudy.store.lease import Lease
from understudy.store.objects import Objects
from understudy.store.runs import Run
from understudy.store.step_cache import FOLDER, CachedStep, StepCache


class Store:
    """The shared volume. Several processes on several machines may use it concurrently."""

    def __init__(self, folder: Path, lease_seconds: float = 30.0) -> None:
        """Open a store, or create one if there is none.

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
            version.check(self.folder)  # first, so that a store of another version stays unchanged
            for part in ("objects", FOLDER, "work", "runs", "fingerprints"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
            version.write(self.folder)
        self.fingerprints = Fingerprints(self.folder / "fingerprints")
        self.objects = Objects(self.folder / "objects", self.fingerprints)
        self.step_cache = StepCache(self.folder / FOLDER)

    def cached_step(self, key: str, run: Run | None = None) -> CachedStep | None:
        """The finished step of a key, if its object exists and is intact; None if the work must be done.

        A damaged object is set aside, so that it is built again. The run, if given, uses the object from now on, and
        gets a note about the damage.
        """
        cached = self.step_cache.get(key)
        if cached is None:
            return None
        # Recorded before the object is looked up: gc reads the uses of live runs only after moving an object aside.
        if run:
            run.use(cached.digest)
        if not self.objects.path(cached.digest).exists():
            return None
        if damage := self.objects.damage(cached.digest):
            self.objects.set_aside(cached.digest)
            if run:
                run.note(f"damaged, so {cached.step} was done again: {damage[0]}")
            return None
        self.step_cache.touch(key)
        return cached

    def acquire(self, key: str) -> Lease | None:
        """The lease on a step's work, or None while another run holds it."""
        return leases.acquire(self.folder / "work", key, self.lease_seconds)

    def wait_for(self, key: str, give_up: Callable[[], bool]) -> Lease | None:
        """The lease on a step's work as soon as it is free; None when give_up() returns true first."""
        return leases.wait_for(self.folder / "work", key, self.lease_seconds, give_up)

    def conclude(
        self,
        lease: Lease,
        step: str,
        parts: Mapping[str, object],
        staged: Path,
        kind: str,
        inputs: Mapping[str, str],
        facts: Mapping[str, Any],
        seconds: float,
    ) -> str:
        """Publish a step's result, put it into the step cache, and end its lease.

        Raises:
            Fenced: the lease was lost; nothing went into the step cache.
        """
        key = lease.folder.parent.name
        # Both renames come out of the lease's folder, so a fenced holder fails here with nothing in the step cache.
        try:
            digest = self.objects.publish(staged, kind, inputs, facts)
            cached = CachedStep(key, step, dict(parts), digest, seconds, time.time())
            self.step_cache.put_fenced(cached, lease.folder)
        except FileNotFoundError as error:
            raise Fenced(f"{step}: another run has taken this step over; its result counts") from error
        lease.finish()
        return digest

    def remember_server(self, address: str, digests: Iterable[str] = ()) -> None:
        """Record a server where models of this store are registered; gc queries every such server.

        Args:
            address: the server's address.
            digests: the models registered there, if the server may show an account only some of them.
        """
        server = self.folder / "servers" / sha256(address.encode())[:16]
        with disk_errors(self.folder):
            server.mkdir(parents=True, exist_ok=True)
            for digest in digests:
                (server / digest).touch()
        write_json(server.with_suffix(".json"), {"address": address})

    def judged(self, name: str, split: str, digest: str) -> Judged:
        """A model among those judged on a test split for a registered model.

        Args:
            name: the registered model's name.
            split: the digest of the test examples.
            digest: the model's digest; it is counted once.
        """
        return Judged(self.folder, name, split, digest)

    @property
    def registered(self) -> dict[str, list[Path]]:
        """The digests of remember_server(), each with its file for every server."""
        files: dict[str, list[Path]] = {}
        for file in sorted((self.folder / "servers").glob("*/[0-9a-f]*")):
            files.setdefault(file.name, []).append(file)
        return files

    @property
    def servers(self) -> dict[str, Path]:
        """The servers of remember_server(), each with its file."""
        files = sorted((self.folder / "servers").glob("[0-9a-f]*.json"))
        contents = {file: read_json(file) for file in files}
        return {value["address"]: file for file, value in contents.items() if value}

    def create_run(self, name: str, recipe: Mapping[str, object], tracking_uri: str, run_id: str | None = None) -> Run:
        """A new run's folder."""
        return runs.create(self.folder / "runs", name, recipe, tracking_uri, run_id)

    def run(self, run_id: str) -> Run:
        """A run by its id."""
        return Run(self.folder / "runs" / run_id)

    def runs(self) -> list[Run]:
        """All runs, the oldest first."""
        return list(runs.every(self.folder / "runs"))
