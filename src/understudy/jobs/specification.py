"""The job specification: one JSON file that the ranks of every launcher read, and the paths of a job's files."""

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
"""Sections of `resources` for roles that have none of the same name."""


@dataclass(frozen=True)
class JobSpec:
    """One job.

    `folder` is the step's Platform.job_folder(): checkpoints, progress, outcomes and the result are below it.
    """

    version: str
    role: Role
    folder: str
    payload: Annotated[Payload, Field(discriminator="kind")]
    """The work of the ranks."""
    resources: Resources
    """The job's section of the recipe; `threads` and `device` are resolved from it on the job's platform."""
    threads: int
    device: Literal["cpu", "cuda"]
    logs: str
    """The run's log folder; ranks write into its subfolder named after the role."""
    factories: dict[str, str] = field(default_factory=dict)
    """Source digests of the recipe's factories, as in the step's key: the source on the ranks must match."""
    profile: bool = False
    """Whether ranks trace some steps."""
    supervised: bool = False
    """Whether a launcher in a cluster supervises the job: ranks that end early restart as its next attempt."""
    attempt: str = ""
    """The subfolder of `folder` for checkpoints and the result; supervised ranks agree on it at the rendezvous."""
    launcher_timeout: float = 600.0
    """Seconds without a launcher heartbeat after which ranks take a checkpoint and exit."""

    @property
    def nodes(self) -> int:
        """Maximum number of nodes."""
        return self.resources.nodes

    @property
    def processes(self) -> int:
        """Ranks per node."""
        return self.resources.processes

    @property
    def world_size(self) -> int:
        """Number of ranks when the job has all its nodes."""
        return self.nodes * self.processes

    @property
    def min_nodes(self) -> int:
        """Minimum number of nodes to continue with."""
        return self.resources.min_nodes or self.nodes

    @property
    def hang_timeout(self) -> float:
        """Seconds without a heartbeat of any rank after which the job counts as hung."""
        return float(self.resources.hang_timeout)

    @property
    def section(self) -> str:
        """The job's section in the recipe; the control uses that of distill, serving that of evaluate."""
        return f"resources.{SECTIONS.get(self.role, self.role)}"

    @property
    def path(self) -> Path:
        """The specification's path."""
        return Path(self.folder) / "job.json"

    def write(self, path: Path | None = None) -> Path:
        """Write the specification to `path`, by default into its folder."""
        path = path or self.path
        write_json(path, _adapter().dump_python(self, mode="json", by_alias=True))
        return path

    @staticmethod
    def read(path: Path) -> "JobSpec":
        """Read a specification.

        Raises:
            UnderstudyError: another version of understudy wrote it, in an incompatible format.
        """
        text = path.read_text()
        try:
            return _adapter().validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            location = ".".join(str(part) for part in first["loc"]) or "the file"
            raise UnderstudyError(
                f"{path}: understudy {_version(text)} wrote this job, this one cannot read it ({location}: "
                f"{first['msg']}); take images of one build for the launcher and for `image` in the cluster's settings"
            ) from error

    @property
    def metrics(self) -> Path:
        """A JSON line per report: step and steps, and for a training the other fields of train.reports.Report."""
        return Path(self.folder) / "metrics.jsonl"

    @property
    def stop_file(self) -> Path:
        """The stop file: once it exists, ranks take a checkpoint and exit."""
        return Path(self.folder) / "stop"

    @property
    def abandoned_file(self) -> Path:
        """Exists if ranks ended because they saw no launcher; those that wait for others leave no outcome."""
        return Path(self.folder) / "abandoned"

    @property
    def work(self) -> Path:
        """The folder of checkpoints and the result; a fenced writer finds it gone."""
        return Path(self.folder) / self.attempt

    @property
    def output(self) -> Path:
        """The folder of the finished result."""
        return self.work / "output"

    @property
    def is_over(self) -> bool:
        """Whether the job's folder was removed. A pod's mount outlives the folder: it is empty, or stale on NFS."""
        try:
            return not self.path.exists()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            return True

    @property
    def rank_logs(self) -> Path:
        """The log folder of ranks and node agents."""
        return Path(self.logs) / self.role

    def heartbeat(self, rank: int) -> Path:
        """A rank's heartbeat: step, phase, node, time."""
        return Path(self.folder) / f"heartbeat-{rank}.json"

    def log(self, rank: int) -> Path:
        """The log of a supervised job's rank, across all attempts."""
        return self.rank_logs / f"rank-{rank}.log"

    def agent_log(self, host: str) -> Path:
        """The log of a node agent, a copy of its pod's; `host` is the pod's name."""
        return self.rank_logs / f"agent-{host}.log"

    def stacks(self, rank: int) -> Path:
        """The thread stacks of a rank that hung."""
        return self.rank_logs / f"stacks-{rank}.txt"

    def collectives(self, rank: int) -> Path:
        """The last collectives of a rank that hung (JSON of torch's flight recorder)."""
        return self.rank_logs / f"collectives-{rank}.json"

    def trace(self, rank: int) -> Path:
        """A rank's trace of the profiled steps (Chrome's format)."""
        return self.rank_logs / f"trace-{rank}.json.gz"

    def memory(self, rank: int) -> Path:
        """A rank's GPU memory snapshot of the profiled steps: a pickle, for pytorch.org/memory_viz."""
        return self.rank_logs / f"memory-{rank}.pickle"

    def profile_of(self, rank: int) -> Path:
        """A rank's analysis of its trace."""
        return self.rank_logs / f"profile-{rank}.json"

    def outcome(self, rank: int) -> Path:
        """A rank's outcome."""
        return Path(self.folder) / f"outcome-{rank}.json"

    def clear(self) -> None:
        """Remove the unfinished files of a failed job: a full disk has no room for its outcome otherwise."""
        for path in [self.output, *self.work.glob("checkpoints/.writing-*")]:
            shutil.rmtree(path, ignore_errors=True)


@cache
def _adapter() -> TypeAdapter[JobSpec]:
    return TypeAdapter(JobSpec)


def _version(text: str) -> str:
    """The version that wrote an unreadable specification."""
    try:
        values = json.loads(text)
    except ValueError:
        return "of an unknown version"
    return str(values.get("version", "of an unknown version")) if isinstance(values, dict) else "of an unknown version"
