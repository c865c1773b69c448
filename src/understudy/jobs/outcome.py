"""How a rank ended, and which of several ends made the others fail."""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from understudy.store.files import read_json, write_json


@dataclass(frozen=True)
class Outcome:
    """How a rank ended: an exit code as the command's, and a message for the user unless it went well."""

    exit_code: int
    message: str = ""
    kind: Literal["told", "killed", "raised", "silent", "lost"] = "told"
    """An error that we know, a signal, an exception that we do not know, no word at all, or another rank's end."""
    at: float = field(default_factory=time.time, compare=False)
    attempt: str = ""
    """The job's folder of that time; what an earlier one said does not count for a later one."""

    def write(self, path: Path) -> None:
        """Write the outcome down."""
        write_json(path, asdict(self))

    @staticmethod
    def read(path: Path) -> "Outcome | None":
        """The outcome in a file; None when there is none."""
        value = read_json(path)
        return Outcome(**value) if value else None

    @staticmethod
    def cause(failures: "list[Outcome]") -> "Outcome":
        """The one that made the others fail: a killed rank's peers raise what their lost connection makes of it."""
        kinds = ("told", "killed", "raised", "silent", "lost")
        return min(failures, key=lambda outcome: (kinds.index(outcome.kind), outcome.at))
