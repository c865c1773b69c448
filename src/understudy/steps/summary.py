"""A run's outcome: the verdict, the measures, the registration, and the notes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from understudy.errors import printable
from understudy.evaluate.contents import Measures, Verdict
from understudy.graph import EVALUATION, GATE, INGEST, REGISTRATION, Kind
from understudy.steps.graph import state_of
from understudy.steps.profiles import profiles_of, unprofiled
from understudy.store import Run, Store
from understudy.store.files import read_json
from understudy.train.profile import Profile

NAMED = 3  # unreadable records in a note; the others are in records.json


class Registered(TypedDict):
    """The content of registration.json; its fields are those of registry.register.Registration."""

    parent_run_id: str
    version: str | None
    name: str
    url: str
    stays: NotRequired[str]  # absent in registrations of an older understudy


class Skipped(TypedDict):
    """A skipped record in records.json."""

    name: str
    reason: str


@dataclass(frozen=True)
class Summary:
    """A run's outcome."""

    run: str
    verdict: Verdict | None
    measures: Measures | None
    registration: Registered | None
    notes: list[str]
    profiles: dict[str, Profile]
    """By the role of the trained model; empty unless the run was profiled."""


def summary_of(store: Store, run: Run) -> Summary:
    """A run's outcome so far."""
    return Summary(
        run.id,
        _contents(store, run, GATE),
        _contents(store, run, EVALUATION),
        _contents(store, run, REGISTRATION),
        [*run.notes, *_of_records(_contents(store, run, INGEST)), *unprofiled(run)],
        profiles_of(run),
    )


def _contents(store: Store, run: Run, kind: Kind) -> Any:
    """The contents of a result; None if the run has not got so far."""
    state = state_of(run, kind)
    return read_json(store.objects.path(state.digest) / kind.contents) if state and state.digest else None


def _of_records(records: Any) -> list[str]:
    """Notes on the data; none before ingest is done."""
    if not records:
        return []
    return [*_left_out(records["skipped"]), *map(printable, records.get("notes", ()))]  # absent in older records


def _left_out(skipped: Sequence[Skipped]) -> list[str]:
    """A sentence on the unreadable records, with the names of the first."""
    if not skipped:
        return []
    first = "; ".join(f"{broken['name']} {broken['reason']}" for broken in skipped[:NAMED])
    count = f"{len(skipped)} records" if len(skipped) > 1 else "1 record"
    return [f"{count} left out: {first}{'; ...' if len(skipped) > NAMED else ''}"]
