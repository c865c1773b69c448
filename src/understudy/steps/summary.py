"""What a run came to: the verdict, the measures, the registration, and what should be noted."""

import json
from dataclasses import dataclass
from typing import Any

from understudy.store import Run, Store

NAMED = 3  # records that could not be read; the others are in records.json


@dataclass(frozen=True)
class Summary:
    """What a run came to."""

    run: str
    verdict: dict[str, Any] | None
    measures: dict[str, Any] | None
    registration: dict[str, Any] | None
    notes: list[str]


def summary_of(store: Store, run: Run) -> Summary:
    """What a run came to, as far as it got."""

    def content(step: str, name: str) -> dict[str, Any] | None:
        state = run.state(step)
        path = store.objects.path(state.digest) / name if state and state.digest else None
        return dict(json.loads(path.read_text())) if path and path.exists() else None

    return Summary(
        run.id,
        content("gate", "verdict.json"),
        content("evaluate", "measures.json"),
        content("register", "registration.json"),
        [*run.notes, *_left_out(content("ingest", "records.json"))],
    )


def _left_out(records: dict[str, Any] | None) -> list[str]:
    """The records that could not be read, in a sentence that names the first of them."""
    skipped = records["skipped"] if records else []
    if not skipped:
        return []
    first = "; ".join(f"{broken['name']} {broken['reason']}" for broken in skipped[:NAMED])
    count = f"{len(skipped)} records" if len(skipped) > 1 else "1 record"
    return [f"{count} left out: {first}{'; ...' if len(skipped) > NAMED else ''}"]
