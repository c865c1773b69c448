"""Outcomes of ranks, and the root failure among several."""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pydantic import TypeAdapter

from understudy.jobs.files import read
from understudy.store.files import write_json

Kind = Literal["reported", "killed", "raised", "unreported", "lost"]
"""An expected error, a signal, an unexpected exception, no outcome at all, or a lost peer."""


@dataclass(frozen=True)
class Outcome:
    """A rank's outcome: an exit code like the command's, and a message for the user unless it succeeded."""

    exit_code: int
    message: str = ""
    kind: Kind = "reported"
    at: float = field(default_factory=time.time, compare=False)
    attempt: str = ""
    """The name of the attempt's folder; an outcome of an earlier attempt does not count."""

    def write(self, path: Path) -> None:
        """Write the outcome to a file."""
        write_json(path, asdict(self))

    @staticmethod
    def read(path: Path) -> "Outcome | None":
        """Read the outcome in a file; None if it is missing or malformed."""
        return read(path, OUTCOME)

    @staticmethod
    def cause(failures: "list[Outcome]") -> "Outcome":
        """The root failure: after a rank is killed, its peers fail with errors of the lost connection."""
        kinds = get_args(Kind)
        return min(failures, key=lambda outcome: (kinds.index(outcome.kind), outcome.at))


OUTCOME = TypeAdapter(Outcome)
