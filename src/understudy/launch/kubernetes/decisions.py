"""What a rule can decide: what is to be done about a job, as a value. The controller does it."""

from dataclasses import dataclass

from understudy.jobs.outcome import Outcome


class Announced:
    """A decision with the lines that are logged when it is carried out."""

    @property
    def messages(self) -> tuple[str, ...]:
        """One line each."""
        return ()


@dataclass(frozen=True)
class Submit(Announced):
    """Submit the job: there is none that does its work."""


@dataclass(frozen=True)
class Adopt(Announced):
    """Watch a job that is there already, whichever launcher submitted it."""

    name: str
    delete: tuple[str, ...] = ()
    """Other jobs that do the same work."""

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (f"watching the job {self.name}, which was submitted before",)


@dataclass(frozen=True)
class DeleteJobs(Announced):
    """Delete jobs that have ended, or whose result was lost, and look again."""

    names: tuple[str, ...]

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (f"waiting until {', '.join(self.names)}, which has ended, is deleted",)


@dataclass(frozen=True)
class Restart(Announced):
    """Delete the job and submit it again; it resumes from its last checkpoint."""

    why: str

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (f"restarting at the last checkpoint: {self.why}",)


@dataclass(frozen=True)
class DeletePods(Announced):
    """Delete pods, so that the operator makes others elsewhere."""

    dead: tuple[str, ...]
    """They are force-deleted, since their node does not answer."""
    others: tuple[str, ...]
    """They have their grace period."""
    why: str

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (self.why,)


@dataclass(frozen=True)
class Resize(Announced):
    """Have the job ask for fewer nodes."""

    nodes: int
    why: str

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (self.why,)


@dataclass(frozen=True)
class Announce(Announced):
    """Log what has happened; there is nothing to do about it."""

    lines: tuple[str, ...]

    @property
    def messages(self) -> tuple[str, ...]:
        """One line each."""
        return self.lines


@dataclass(frozen=True)
class Wait(Announced):
    """Do nothing until the next round."""

    why: str = ""
    """What for; empty where the job's own progress shows it."""

    @property
    def messages(self) -> tuple[str, ...]:
        """One line."""
        return (self.why,) if self.why else ()


@dataclass(frozen=True)
class Finish(Announced):
    """Give the verdict. Unless it is a success, the job is deleted."""

    outcome: Outcome
    explain: bool = False
    """Whether the message is to include the evidence: how pods ended, and the rank's last lines."""


Decision = Submit | Adopt | DeleteJobs | Restart | DeletePods | Resize | Announce | Wait | Finish
