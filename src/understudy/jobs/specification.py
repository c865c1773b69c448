"""The job specification: one JSON file that every rank reads, with any launcher, and the paths of a job's files."""

import errno
import json
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from understudy.errors import UnderstudyError
from understudy.jobs.payload import Payload
from understudy.recipe import Resources
from understudy.store.files import write_json

Role = Literal["teacher", "distill", "control", "evaluate", "serving", "collectives"]
SECTIONS: dict[Role, str] = {"control": "distill", "serving": "evaluate"}
"""The section of `resources` of a role that has none of its own name."""


@dataclass(frozen=True)
class JobSpec:
    """One job.

    `folder` is the step's leased work folder: checkpoints, progress, the outcome and the result are below it.
    """

    version: str
    role: Role
    folder: str
    payload: Annotated[Payload, Field(discriminator="kind")]
    """What its ranks do."""
    resources: Resources
    """The job's section of the recipe; `threads` and `device` are what it resolves to where the job runs."""
    threads: int
    device: Literal["cpu", "cuda"]
    logs: str
    """The folder of the run's logs; ranks write into the one below it that has the role's name."""
    factories: dict[str, str] = field(default_factory=dict)
    """By factory of the recipe the digest of its source, as the step's key has it: ranks have to have the same."""
    profile: bool = False
    """Whether ranks leave a trace of some steps."""
    supervised: bool = False
    """Whether a launcher in a cluster watches: ranks that end early are started again, as the job's next attempt."""
    attempt: str = ""
    """The folder below `folder` for checkpoints and the result; supervised ranks agree on it at the rendezvous."""
    launcher_timeout: float = 600.0
    """Seconds without a heartbeat of the launcher after which ranks take a checkpoint and leave."""

    @property
    def nodes(self) -> int:
        """The most nodes that the job has."""
        return self.resources.nodes

    @property
    def processes(self) -> int:
        """Ranks on each node."""
        return self.resources.processes

    @property
    def world_size(self) -> int:
        """Ranks of the job, when it has all its nodes."""
        return self.nodes * self.processes

    @property
    def min_nodes(self) -> int:
        """The fewest nodes that the job continues with."""
        return self.resources.min_nodes or self.nodes

    @property
    def hang_timeout(self) -> float:
        """Seconds without a step after which the job counts as hung."""
        return float(self.resources.hang_timeout)

    @property
    def section(self) -> str:
        """The job's section in the recipe; the control has that of distill."""
        return f"resources.{SECTIONS.get(self.role, self.role)}"

    @property
    def path(self) -> Path:
        """The specification's path."""
        return Path(self.folder) / "job.json"

    def write(self, path: Path | None = None) -> Path:
        """Write the specification into its folder, or to another place."""
        path = path or self.path
        write_json(path, _adapter().dump_python(self, mode="json", by_alias=True))
        return path

    @staticmethod
    def read(path: Path) -> "JobSpec":
        """The specification in a file.

        Raises:
            UnderstudyError: another version of understudy wrote it, in a form that this one does not know.
        """
        text = path.read_text()
        try:
            return _adapter().validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise UnderstudyError(
                f"{path}: understudy {_version(text)} wrote this job, this one cannot read it ({place}: "
                f"{first['msg']}); give the launcher and `image` in the cluster's settings images of one build"
            ) from error

    @property
    def metrics(self) -> Path:
        """A line of JSON per report: step and steps, and of a training all else that train.job.Report has."""
        return Path(self.folder) / "metrics.jsonl"

    @property
    def stop_file(self) -> Path:
        """Ranks take a checkpoint and leave when this exists."""
        return Path(self.folder) / "stop"

    @property
    def abandoned_file(self) -> Path:
        """Exists when ranks ended because no launcher watched them; those that wait for others leave no outcome."""
        return Path(self.folder) / "abandoned"

    @property
    def work(self) -> Path:
        """The folder of checkpoints and the result; a writer that was fenced finds it gone."""
        return Path(self.folder) / self.attempt

    @property
    def output(self) -> Path:
        """The finished result's files."""
        return self.work / "output"

    @property
    def is_over(self) -> bool:
        """Whether the job's folder was removed. A pod has it as a mount, which outlives it: empty, or stale on NFS."""
        try:
            return not self.path.exists()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            return True

    @property
    def rank_logs(self) -> Path:
        """Where ranks and their agents write logs."""
        return Path(self.logs) / self.role

    def heartbeat(self, rank: int) -> Path:
        """A rank's heartbeat: step, phase, node, time."""
        return Path(self.folder) / f"heartbeat-{rank}.json"

    def log(self, rank: int) -> Path:
        """The log of a supervised job's rank, all attempts one after the other."""
        return self.rank_logs / f"rank-{rank}.log"

    def agent_log(self, host: str) -> Path:
        """The log of a node agent, a copy of its pod's; `host` is the pod's name."""
        return self.rank_logs / f"agent-{host}.log"

    def stacks(self, rank: int) -> Path:
        """Where a rank that hangs leaves the stacks of its threads."""
        return self.rank_logs / f"stacks-{rank}.txt"

    def collectives(self, rank: int) -> Path:
        """Where it leaves what it did with the others last (JSON of torch's flight recorder)."""
        return self.rank_logs / f"collectives-{rank}.json"

    def trace(self, rank: int) -> Path:
        """Where it leaves the trace of the steps that it recorded (Chrome's format)."""
        return self.rank_logs / f"trace-{rank}.json.gz"

    def memory(self, rank: int) -> Path:
        """Where it leaves what lay in its GPU's memory meanwhile: a pickle, for pytorch.org/memory_viz."""
        return self.rank_logs / f"memory-{rank}.pickle"

    def profile_of(self, rank: int) -> Path:
        """Where it leaves what it found in the trace."""
        return self.rank_logs / f"profile-{rank}.json"

    def outcome(self, rank: int) -> Path:
        """A rank's outcome."""
        return Path(self.folder) / f"outcome-{rank}.json"

    def clear(self) -> None:
        """Remove what a failed job left unfinished: otherwise there is no room on a full disk for its outcome."""
        for path in [self.output, *self.work.glob("checkpoints/.writing-*")]:
            shutil.rmtree(path, ignore_errors=True)


@cache
def _adapter() -> TypeAdapter[JobSpec]:
    return TypeAdapter(JobSpec)


def _version(text: str) -> str:
    """Who wrote a specification that cannot be read."""
    try:
        values = json.loads(text)
    except ValueError:
        return "of an unknown version"
    return str(values.get("version", "of an unknown version")) if isinstance(values, dict) else "of an unknown version"
