"""How a rank ended, and which of several ends made the others fail."""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pydantic import TypeAdapter

from understudy.jobs.files import read
from understudy.store.files import write_json

Kind = Literal["reported", "killed", "raised", "unreported", "lost"]
"""A known error, a signal, an unknown exception, no outcome at all, or a lost peer."""


@dataclass(frozen=True)
class Outcome:
    """How a rank ended: an exit code as the command's, and a message for the user unless it succeeded."""

    exit_code: int
    message: str = ""
    kind: Kind = "reported"
    at: float = field(default_factory=time.time, compare=False)
    attempt: str = ""
    """The job's folder of that time; an outcome of an earlier attempt does not count."""

    def write(self, path: Path) -> None:
        """Write the outcome down."""
        write_json(path, asdict(self))

    @staticmethod
    def read(path: Path) -> "Outcome | None":
        """The outcome in a file; None when there is none, or what a rank left there is no outcome."""
        return read(path, OUTCOME)

    @staticmethod
    def cause(failures: "list[Outcome]") -> "Outcome":
        """The one that made the others fail: a killed rank's peers raise what their lost connection makes of it."""
        kinds = get_args(Kind)
        return min(failures, key=lambda outcome: (kinds.index(outcome.kind), outcome.at))


OUTCOME = TypeAdapter(Outcome)
