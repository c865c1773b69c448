"""Decisions of rules about a job, as values; the controller carries them out."""

from dataclasses import dataclass

from understudy.jobs.outcome import Outcome


class Announced:
    """A decision with the lines to log when it is carried out."""

    @property
    def messages(self) -> tuple[str, ...]:
        """One line each."""
        return ()


@dataclass(frozen=True)
class Submit(Announced):
    """Submit the job: none exists for its work."""


@dataclass(frozen=True)
class Adopt(Announced):
    """Watch an existing job, whichever launcher submitted it."""

    name: str
    delete: tuple[str, ...] = ()
    """Other jobs that do the same work."""

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (f"watching the job {self.name}, which was submitted before",)


@dataclass(frozen=True)
class DeleteJobs(Announced):
    """Delete jobs that have ended, or whose result was lost, and observe again."""

    names: tuple[str, ...]

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (f"waiting until {', '.join(self.names)}, which has ended, is deleted",)


@dataclass(frozen=True)
class Restart(Announced):
    """Delete the job and submit it again; it resumes from its last checkpoint."""

    reason: str

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (f"restarting at the last checkpoint: {self.reason}",)


@dataclass(frozen=True)
class DeletePods(Announced):
    """Delete pods, so that the operator recreates them elsewhere."""

    dead: tuple[str, ...]
    """Pods to force-delete, since their node does not respond."""
    responsive: tuple[str, ...]
    """Pods to delete with their grace period."""
    reason: str

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (self.reason,)


@dataclass(frozen=True)
class Resize(Announced):
    """Make the job request fewer nodes."""

    nodes: int
    reason: str

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (self.reason,)


@dataclass(frozen=True)
class Announce(Announced):
    """Log events that need no action."""

    lines: tuple[str, ...]

    @property
    def messages(self) -> tuple[str, ...]:
        """One line each."""
        return self.lines


@dataclass(frozen=True)
class Wait(Announced):
    """Do nothing until the next round."""

    reason: str = ""
    """The reason; empty if the job's progress shows it."""

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (self.reason,) if self.reason else ()


@dataclass(frozen=True)
class Finish(Announced):
    """End with a verdict. Unless it is a success, the job is deleted."""

    outcome: Outcome
    explain: bool = False
    """Whether to add the evidence to the message: how pods ended, and the rank's last lines."""


Decision = Submit | Adopt | DeleteJobs | Restart | DeletePods | Resize | Announce | Wait | Finish
