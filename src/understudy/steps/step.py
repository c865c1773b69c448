"""What a step is: what decides its result, the function that makes it, and what that function is given."""

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
    """A step's result: the step's name, and the object with what its manifest says of it."""

    step: str
    digest: str
    path: Path
    facts: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The digests that it was made from, by role."""

    @property
    def said(self) -> str:
        """Its facts in words."""
        return ", ".join(f"{name} {short(value)}" for name, value in self.facts.items())


def short(value: object) -> str:
    """A fact, numbers to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass
class Work:
    """What a step's function gets to do its work with."""

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
        """What of the world outside the store decides the result."""
        return self.decided_by["world"]

    @property
    def tracking_uri(self) -> str:
        """The tracking server's address, which may hold credentials: from the environment, never from a file."""
        return tracking_uri(self.store)

    def input(self, role: str) -> Path:
        """The folder of an input object."""
        return self.store.objects.path(self.inputs[role])

    def report_waiting(self, detail: str) -> None:
        """Record what the step waits for, or does, while there is no progress."""
        state = self.run.state(self.step)
        assert state is not None
        self._pace = Pace()
        self.run.record(replace(state, state="running", detail=detail, left=0.0))

    def progress(self, done: float, total: float, unit: str = "", detail: str = "") -> None:
        """Record the step's progress."""
        state = self.run.state(self.step)
        assert state is not None
        left = self._pace.left(done, total, time.monotonic()) if total else 0.0
        state = replace(state, state="running", done=done, total=total, unit=unit, detail=detail, left=left)
        self.run.record(state)
        if left and RUN not in os.environ and self._pace.is_worth_a_line(time.monotonic()):
            log.info("%s: running: %s", self.step, state.words)


@dataclass(frozen=True)
class World:
    """What of the world outside the store decides a result."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    """Digests by role of objects that the pipeline does not make: the champion."""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step: what decides its result, the function that makes it, and what follows it."""

    name: str
    role: str
    """What its result is to the steps that take it."""
    kind: str
    """The kind of its object."""
    work: Callable[[Work], None]
    """Its function. Code that only launches, watches and records does not count."""
    modules: tuple[str, ...]
    """Modules of the package whose source decides the result, with all that they import."""
    functions: tuple[Callable[..., Any], ...] = ()
    """Functions that decide it too, each with what it uses of its own module; what that imports does not count."""
    section: Callable[[Recipe, Store], Mapping[str, Any]]
    """What of the recipe, and of the data and models that it names, decides the result."""
    check: Callable[[Recipe, Store, Mapping[str, str]], None] = lambda recipe, store, inputs: None
    """Refuses, with InputError, what its inputs show to be in vain; asked before the step is looked up or done."""
    inputs: tuple[str, ...] = ()
    """Roles of the objects that other steps of the pipeline make for it; a pipeline may lack some."""
    outside: Callable[[Run, Store, Mapping[str, str]], World] = lambda run, store, inputs: World()
    """What of the world outside the store decides the result, for a run and the digests that its pipeline gives."""
    still_holds: Callable[[Path, Store], bool] = lambda path, store: True
    """Whether a cached result is still true of the world outside the store."""
    outcome: Callable[[Result], str] = lambda result: result.said
    """What came out, in words: the last line of a task's log says it."""
    follow: Callable[[Run, Store], None] = lambda run, store: None
    """What is done once the result is there, made now or found."""


class Parts(TypedDict):
    """All that decides a step's result, as the step cache keeps it."""

    step: str
    code: Revision
    recipe: Mapping[str, object]
    inputs: Mapping[str, str]
    world: Mapping[str, str]


def parts(step: Step, recipe: Recipe, store: Store, inputs: Mapping[str, str], world: Mapping[str, str]) -> Parts:
    """What decides a step's result; its digest is the step key, under which the step cache remembers the result."""
    return {
        "step": step.name,
        "code": revision(step.modules, functions=step.functions),
        "recipe": dict(step.section(recipe, store)),
        "inputs": dict(inputs),
        "world": dict(world),
    }
