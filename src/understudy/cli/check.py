"""One check of understudy doctor."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    what: str
    found: str
    fix: str = ""
    """How to fix the problem; empty if there is none."""

    @property
    def ok(self) -> bool:
        """Whether a run can start with this result."""
        return not self.fix
