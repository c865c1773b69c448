"""What a step is: what decides its result, the function that makes it, and what that function is given."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from understudy.recipe import Recipe
from understudy.revision import revision
from understudy.steps.environment import RUN, tracking_uri
from understudy.steps.pace import Pace
from understudy.store import Lease, Run, Store


@dataclass(frozen=True)
class Result:
    """A step's result: the object's digest, where it lies, and the small facts of its manifest."""

    digest: str
    path: Path
    facts: Mapping[str, Any]


@dataclass
class Work:
    """What a step's function gets to do its work with."""

    step: str
    store: Store
    run: Run
    recipe: Recipe
    inputs: Mapping[str, str]
    world: Mapping[str, str]
    lease: Lease
    staged: Path
    """An empty folder; its files become the object."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Small facts for the object's manifest."""
    _pace: Pace = field(default_factory=Pace)

    @property
    def tracking_uri(self) -> str:
        """The tracking server's address, which may hold credentials: from the environment, never from a file."""
        return tracking_uri(self.store)

    def input(self, role: str) -> Path:
        """The folder of an input object."""
        return self.store.objects.path(self.inputs[role])

    def stand(self, detail: str) -> None:
        """Tell them what the step waits for, or does, while it gets no further."""
        state = self.run.state(self.step)
        assert state is not None
        self._pace = Pace()
        self.run.record(replace(state, state="running", detail=detail, left=0.0))

    def progress(self, done: float, total: float, unit: str = "", detail: str = "") -> None:
        """Tell the run's watchers how far the step is."""
        state = self.run.state(self.step)
        assert state is not None
        left = self._pace.left(done, total, time.monotonic()) if total else 0.0
        state = replace(state, state="running", done=done, total=total, unit=unit, detail=detail, left=left)
        self.run.record(state)
        if left and RUN not in os.environ and self._pace.is_worth_a_line(time.monotonic()):
            print(f"{self.step}: running: {state.words}", flush=True)


@dataclass(frozen=True)
class Step:
    """A step: what decides its result, and the function that makes it."""

    name: str
    kind: str
    enters: tuple[str, ...]
    """Modules of the package whose source decides the result."""
    section: Callable[[Recipe, Store], Mapping[str, Any]]
    """What of the recipe, and of the data and models that it names, decides the result."""
    work: Callable[[Work], None]
    decided_by: tuple[Callable[..., Any], ...] = ()
    """Functions of other modules whose source decides the result too; what they import does not count."""
    still_holds: Callable[[Path, Store], bool] = lambda path, store: True
    """Whether a remembered result still says the truth about the world outside the store."""


def parts(
    step: Step, recipe: Recipe, store: Store, inputs: Mapping[str, str], world: Mapping[str, str]
) -> dict[str, Any]:
    """All that decides a step's result; the digest of this is the key under which it is remembered."""
    return {
        "step": step.name,
        "code": revision(step.enters, functions=(step.work, *step.decided_by)),
        "recipe": dict(step.section(recipe, store)),
        "inputs": dict(inputs),
        "world": dict(world),
    }
