"""One check of understudy doctor."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    what: str
    found: str
    fix: str = ""
    """How to get what is missing; empty when nothing is."""

    @property
    def ok(self) -> bool:
        """Whether a run can start with it."""
        return not self.fix
