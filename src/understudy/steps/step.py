"""The declaration of a step: the parts of its key, its function, and the function's context."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

from understudy.recipe import Recipe
from understudy.revision import Revision, revision
from understudy.steps.environment import RUN, tracking_uri
from understudy.steps.pace import Pace
from understudy.store import Lease, Run, Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """A step's result: the step's name, and its object with the manifest's facts and inputs."""

    step: str
    digest: str
    path: Path
    facts: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The digests of its inputs, by role."""
    kind: str = ""
    """The object's kind."""
    outcome: str = ""
    """The outcome as text, for the last line of a task's log."""

    @property
    def facts_text(self) -> str:
        """Its facts as text."""
        return ", ".join(f"{name} {short(value)}" for name, value in self.facts.items())


def short(value: object) -> str:
    """A fact as text, floats with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass
class Work:
    """The context of a step's function."""

    step: str
    store: Store
    run: Run
    recipe: Recipe
    decided_by: "Parts"
    lease: Lease
    staged: Path
    """An empty folder; its files become the object."""
    facts: dict[str, object] = field(default_factory=dict)
    """Small facts for the object's manifest."""
    _pace: Pace = field(default_factory=Pace)

    @property
    def inputs(self) -> Mapping[str, str]:
        """Digests by role."""
        return self.decided_by["inputs"]

    @property
    def world(self) -> Mapping[str, str]:
        """The parts of the key from outside the recipe and the store."""
        return self.decided_by["world"]

    @property
    def tracking_uri(self) -> str:
        """The tracking server's address, which may contain credentials: from the environment, never from a file."""
        return tracking_uri(self.store)

    def input(self, role: str) -> Path:
        """The folder of an input object."""
        return self.store.objects.path(self.inputs[role])

    def report_waiting(self, detail: str) -> None:
        """Record the step's activity, such as waiting, while there is no progress."""
        state = self.run.state(self.step)
        assert state is not None
        self._pace = Pace()
        self.run.record(replace(state, state="running", detail=detail, left=0.0))

    def report_resumed(self, training_step: int) -> None:
        """Record that the step resumes from a checkpoint: a state of its own, since progress soon replaces a detail."""
        state = self.run.state(self.step)
        assert state is not None
        self.run.record(replace(state, state="running", resumed=training_step))

    def progress(self, done: float, total: float, unit: str = "", detail: str = "") -> None:
        """Record the step's progress."""
        state = self.run.state(self.step)
        assert state is not None
        left = self._pace.left(done, total, time.monotonic()) if total else 0.0
        state = replace(state, state="running", done=done, total=total, unit=unit, detail=detail, left=left)
        self.run.record(state)
        if left and RUN not in os.environ and self._pace.is_worth_a_line(time.monotonic()):
            log.info("%s: running: %s", self.step, state.summary)


@dataclass(frozen=True)
class World:
    """The parts of a step's key from outside the recipe and the store."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    """Digests by role of objects from outside the pipeline: the champion."""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step: the parts of its key, its function, and its hooks."""

    name: str
    role: str
    """The role of its result among other steps' inputs."""
    kind: str
    """The kind of its object."""
    work: Callable[[Work], None]
    """Its function. Code that only launches, watches and records is not part of the key."""
    modules: tuple[str, ...]
    """Modules of the package whose source is part of the key, with all their imports."""
    functions: tuple[Callable[..., Any], ...] = ()
    """Functions in the key, each with the parts of its module that it uses, but not that module's imports."""
    section: Callable[[Recipe, Store], Mapping[str, Any]]
    """The parts of the key from the recipe, and from the data and models that it refers to."""
    check: Callable[[Recipe, Store, Mapping[str, str]], None] = lambda recipe, store, inputs: None
    """Raises InputError if the inputs show that the run is in vain; called before the cache lookup."""
    inputs: tuple[str, ...] = ()
    """Roles of its inputs from other steps."""
    outside: Callable[[Run, Store, Mapping[str, str]], World] = lambda run, store, inputs: World()
    """The parts of the key from outside the recipe and the store, for a run and its inputs' digests."""
    still_holds: Callable[[Path, Store], bool] = lambda path, store: True
    """Whether a cached result is still valid outside the store."""
    outcome: Callable[[Result], str] = lambda result: result.facts_text
    """A result's outcome as text."""
    remark: Callable[[Result], str] = lambda result: ""
    """A remark on a result that `done` alone would not tell, for the display of the step."""
    follow: Callable[[Run, Store], None] = lambda run, store: None
    """A hook that runs once there is a result, computed or cached."""

    def result(self, digest: str, path: Path, facts: Mapping[str, Any], inputs: Mapping[str, str] = {}) -> Result:
        """The result that an object is."""
        result = Result(self.name, digest, path, facts, inputs, self.kind)
        return replace(result, outcome=self.outcome(result))


class Parts(TypedDict):
    """The parts of a step's key, as stored in the step cache."""

    step: str
    code: Revision
    recipe: Mapping[str, object]
    inputs: Mapping[str, str]
    world: Mapping[str, str]


def parts(step: Step, recipe: Recipe, store: Store, inputs: Mapping[str, str], world: Mapping[str, str]) -> Parts:
    """The parts of a step's key; their digest is the key of its result in the step cache."""
    return {
        "step": step.name,
        "code": revision(step.modules, functions=step.functions),
        "recipe": dict(step.section(recipe, store)),
        "inputs": dict(inputs),
        "world": dict(world),
    }
