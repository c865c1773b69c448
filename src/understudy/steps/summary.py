"""What a run came to: the verdict, the measures, the registration, and what should be noted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from understudy.errors import printable
from understudy.evaluate.contents import Measures, Verdict
from understudy.steps.profiles import profiles_of, unprofiled
from understudy.store import Run, Store
from understudy.store.files import read_json
from understudy.train.profile import Profile

NAMED = 3  # records that could not be read; the others are in records.json


class Registered(TypedDict):
    """The content of registration.json; fields as of registry.register.Registration."""

    parent_run_id: str
    version: str | None
    name: str
    url: str
    stays: NotRequired[str]  # not in what an older understudy has registered


class Skipped(TypedDict):
    """A record that was left out, as records.json has it."""

    name: str
    reason: str


@dataclass(frozen=True)
class Summary:
    """What a run came to."""

    run: str
    verdict: Verdict | None
    measures: Measures | None
    registration: Registered | None
    notes: list[str]
    profiles: dict[str, Profile]
    """By the role of what was trained; none, unless the run was to be profiled."""


def summary_of(store: Store, run: Run) -> Summary:
    """What a run came to, as far as it got."""
    records = _content(store, run, "ingest", "records.json")
    return Summary(
        run.id,
        _content(store, run, "gate", "verdict.json"),
        _content(store, run, "evaluate", "measures.json"),
        _content(store, run, "register", "registration.json"),
        [*run.notes, *_of_records(records), *unprofiled(run)],
        profiles_of(run),
    )


def _content(store: Store, run: Run, step: str, name: str) -> Any:
    """A file of a step's result; None where the run did not get so far."""
    state = run.state(step)
    return read_json(store.objects.path(state.digest) / name) if state and state.digest else None


def _of_records(records: Any) -> list[str]:
    """What should be noted of the data; of a run that did not get so far, nothing."""
    if not records:
        return []
    return [*_left_out(records["skipped"]), *map(printable, records.get("notes", ()))]  # older ones have none


def _left_out(skipped: Sequence[Skipped]) -> list[str]:
    """The records that could not be read, in a sentence that names the first of them."""
    if not skipped:
        return []
    first = "; ".join(f"{broken['name']} {broken['reason']}" for broken in skipped[:NAMED])
    count = f"{len(skipped)} records" if len(skipped) > 1 else "1 record"
    return [f"{count} left out: {first}{'; ...' if len(skipped) > NAMED else ''}"]
