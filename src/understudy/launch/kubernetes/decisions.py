"""What a rule can decide: what is to be done about a job, as a value. The controller does it."""

from dataclasses import dataclass

from understudy.jobs.outcome import Outcome


class Said:
    """What is said when a decision is carried out."""

    @property
    def words(self) -> tuple[str, ...]:
        """One line each."""
        return ()


@dataclass(frozen=True)
class Submit(Said):
    """Submit the job: there is none that does its work."""


@dataclass(frozen=True)
class Adopt(Said):
    """Watch a job that is there already, whichever launcher submitted it."""

    name: str
    delete: tuple[str, ...] = ()
    """Other jobs that do the same work."""

    @property
    def words(self) -> tuple[str, ...]:
        """One line."""
        return (f"watching the job {self.name}, which was submitted before",)


@dataclass(frozen=True)
class DeleteJobs(Said):
    """Delete jobs that have ended, or whose result was lost, and look again."""

    names: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """One line."""
        return (f"waiting until {', '.join(self.names)}, which has ended, is deleted",)


@dataclass(frozen=True)
class Restart(Said):
    """Delete the job and submit it once more; it goes on from its last checkpoint."""

    why: str

    @property
    def words(self) -> tuple[str, ...]:
        """One line."""
        return (f"restarting at the last checkpoint: {self.why}",)


@dataclass(frozen=True)
class DeletePods(Said):
    """Delete pods, so that the operator makes others elsewhere."""

    dead: tuple[str, ...]
    """They are forgotten even when their node does not answer."""
    others: tuple[str, ...]
    """They have their grace period."""
    why: str

    @property
    def words(self) -> tuple[str, ...]:
        """One line."""
        return (self.why,)


@dataclass(frozen=True)
class Resize(Said):
    """Have the job ask for fewer nodes."""

    nodes: int
    why: str

    @property
    def words(self) -> tuple[str, ...]:
        """One line."""
        return (self.why,)


@dataclass(frozen=True)
class Tell(Said):
    """Say what has happened; nothing is to be done about it."""

    lines: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """One line each."""
        return self.lines


@dataclass(frozen=True)
class Wait(Said):
    """Go on looking."""

    why: str = ""
    """What for; empty where the job's own progress says it."""

    @property
    def words(self) -> tuple[str, ...]:
        """One line."""
        return (self.why,) if self.why else ()


@dataclass(frozen=True)
class Finish(Said):
    """Give the verdict. Unless it is a success, nothing of the job goes on."""

    outcome: Outcome
    explain: bool = False
    """Whether the message is to have what is known beside it: how pods ended, and the rank's last lines."""


Decision = Submit | Adopt | DeleteJobs | Restart | DeletePods | Resize | Tell | Wait | Finish
