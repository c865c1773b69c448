"""A model's results on a test split: an object that is measured once for all runs and all roles of the model.

The key covers the model, the examples, the measuring code, how the examples are fed to it, and the device. The number
of processes for examples and shards is left out: the bits are the same. All models of a run are measured in the same
processes, where the code of one could falsify the results of another. So the key also covers the custom code of the
recipe's models: runs share results only if that code is the same.

Latency is never cached: it is a comparison, and all models of a run are timed side by side.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from understudy.errors import Fenced, Stopped
from understudy.evaluate.contents import RESULTS
from understudy.launch.platform import platform
from understudy.models.facts import DESCRIPTION
from understudy.recipe import FactoryModel, Recipe
from understudy.recipe.roles import CHAMPION
from understudy.revision import revision
from understudy.steps.identity import MEASURED_BY, model_identity, task_code
from understudy.steps.step import Parts, Work
from understudy.store import Lease, Store, remote_cache
from understudy.store.files import canonical, read_json, sha256

KIND = "results"
MODULES = ("understudy.evaluate.answers", "understudy.evaluate.loading", "understudy.models.trust")
"""The modules that compute results, with all their imports."""


@dataclass(frozen=True)
class ModelResults:
    """The results of a run's models by role: those in the store, and those to measure."""

    work: Work
    parts: Mapping[str, Parts]
    """The parts of the key of each model's results."""
    digests: dict[str, str] = field(default_factory=dict)
    """Digests by key."""
    leases: dict[str, Lease] = field(default_factory=dict)
    """Of the results that this run measures, by key."""

    @property
    def cached(self) -> dict[str, Path]:
        """The folders of the results that are in the store, by role."""
        of_roles = {role: self.digests.get(key_of(parts)) for role, parts in self.parts.items()}
        return {role: self.work.store.objects.path(digest) for role, digest in of_roles.items() if digest}

    def keep(self, files: Mapping[str, Path], seconds: float) -> None:
        """Move new results into the store, for the next run.

        Args:
            files: the validated results files, by role.
            seconds: how long measuring took.
        """
        for role, file in files.items():
            # Fenced: the process that took over a frozen one's lease stores the same results. Of two roles with one
            # model the first is stored.
            with suppress(Fenced, FileNotFoundError):  # the latter during a takeover
                if lease := self.leases.get(key_of(self.parts[role])):
                    self._publish(lease, self.parts[role], file, seconds)
        if remote := remote_cache.from_environment(self.work.report_waiting):
            for key in sorted(map(key_of, self.parts.values())):
                remote.send(self.work.store, key)

    def _publish(self, lease: Lease, parts: Parts, file: Path, seconds: float) -> None:
        staged = lease.staging()
        os.rename(file, staged / RESULTS)
        self.work.store.conclude(lease, self.work.step, parts, staged, KIND, parts["inputs"], {}, seconds)
        del self.leases[key_of(parts)]


@contextmanager
def model_results(work: Work, roles: list[str]) -> Iterator[ModelResults]:
    """The cached results of a run's models, and leases on the missing ones until the block ends.

    Raises:
        Stopped: a stop was requested while another run measured.
    """
    results = ModelResults(work, parts_by_role(work, roles))
    try:
        # All runs acquire leases in the order of the keys, so that they cannot deadlock.
        for key in sorted({key_of(parts) for parts in results.parts.values()}):
            _find_or_lease(results, key)
        yield results
    finally:
        for lease in results.leases.values():
            with suppress(Fenced):
                lease.release_if_held()


def key_of(parts: Parts) -> str:
    """The step cache's key of results."""
    return sha256(canonical(parts))


def settings_of(recipe: Recipe, store: Store) -> Mapping[str, object]:
    """The recipe's parts of the key of any model's results. The arguments of its factories are in the models."""
    code = {
        model.factory: model_identity(model, store, section)["content"]
        for section, model in recipe.models.items()
        if isinstance(model, FactoryModel)
    }
    takes = recipe.takes("evaluate.generation")
    generation = {"generation": recipe.generation.model_dump(mode="json")} if takes else {}
    return {
        **generation,
        "batch_size": recipe.evaluate.batch_size,
        "stride": recipe.evaluate.stride or recipe.text.sequence_length,
        "precision": recipe.evaluate.precision,
        "device": platform().job_device(recipe.resources.evaluation),
        "code": code,
        "task_code": task_code(recipe.task, MEASURED_BY),
    }


def parts_by_role(work: Work, roles: list[str]) -> dict[str, Parts]:
    """The parts of the key of each model's results, by role."""
    brought = {sha256(canonical(code)) for role in roles if (code := _code(work.input(role)))}
    settings, code = {**settings_of(work.recipe, work.store), "brought": sorted(brought)}, revision(MODULES)
    return {
        role: {"step": KIND, "code": code, "recipe": settings, "inputs": _inputs(work, role), "world": {}}
        for role in roles
    }


def _inputs(work: Work, role: str) -> dict[str, str]:
    inputs = {"examples": work.inputs["examples"], "model": work.inputs[role]}
    if role == CHAMPION and "records" in work.inputs:  # its images are made from them
        inputs["records"] = work.inputs["records"]
    return inputs


def _code(model: Path) -> object:
    """The code that comes with a pretrained model's weights, if any."""
    return (read_json(model / DESCRIPTION) or {}).get("code")


def _find_or_lease(results: ModelResults, key: str) -> None:
    work = results.work
    if _find(results, key):
        return
    lease = work.store.acquire(key) or _wait(results, key)
    if lease is None:
        if not _find(results, key):
            raise Stopped(f"{work.step}: stopped while it waited for another run; run again to resume")
        return
    results.leases[key] = lease
    remote = remote_cache.from_environment(work.report_waiting)
    if _find(results, key) or (remote and remote.fetch(work.store, key) and _find(results, key)):
        results.leases.pop(key).finish()


def _find(results: ModelResults, key: str) -> bool:
    """Whether the results are in the store; if so, the run uses them."""
    if cached := results.work.store.cached_step(key, results.work.run):
        results.digests[key] = cached.digest
    return cached is not None


def _wait(results: ModelResults, key: str) -> Lease | None:
    """Wait for the run that measures the same model."""
    work = results.work
    role = next(role for role, parts in results.parts.items() if key_of(parts) == key)
    work.report_waiting(f"another run measures the {role}")

    def gave_up() -> bool:
        work.lease.check()
        return work.run.stop_requested or _find(results, key)

    return work.store.wait_for(key, gave_up)
