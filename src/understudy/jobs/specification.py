"""The job specification: one JSON file that every rank reads, whoever started it; and what came of the job."""

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from understudy.store.files import write_json

Role = Literal["teacher", "distill", "control"]


@dataclass(frozen=True)
class JobSpec:
    """One training job.

    `folder` is the step's leased work folder: checkpoints, progress, the outcome and the finished model lie below it.
    """

    version: str
    role: Role
    folder: str
    examples: str
    initial: str | None
    """A fetched pretrained model to start from."""
    teacher: str | None
    model: dict[str, Any]
    train: dict[str, Any]
    distill: dict[str, Any] | None
    seed: int
    nodes: int
    """The most; a rank of an elastic job sees how many they are in its attempt."""
    processes: int
    threads: int
    device: str
    logs: str
    min_nodes: int | None = None
    """The fewest nodes that the job goes on with. Default: all of them."""
    others: dict[str, Any] = field(default_factory=dict)
    """Models that later jobs of the run will train, by their place in the recipe: tried on an example beforehand."""
    supervised: bool = False
    """Whether a launcher in a cluster watches: ranks that end early are started again, as the job's next attempt."""
    attempt: str = ""
    """The folder below `folder` for checkpoints and the result; a supervised job's ranks agree on it when they meet."""
    hang_timeout: float = 600.0
    """Seconds without a step after which the job counts as hung."""
    launcher_timeout: float = 600.0
    """Seconds without a sign of life from the launcher after which ranks take a checkpoint and leave."""

    @property
    def world_size(self) -> int:
        """Ranks of the job, when it has all its nodes."""
        return self.nodes * self.processes

    @property
    def least(self) -> int:
        """The fewest nodes that the job goes on with."""
        return self.min_nodes or self.nodes

    @property
    def section(self) -> str:
        """Where the recipe says what the job gets; the control gets what distill gets."""
        return f"resources.{'teacher' if self.role == 'teacher' else 'distill'}"

    @property
    def path(self) -> Path:
        """Where the specification lies."""
        return Path(self.folder) / "job.json"

    def write(self) -> Path:
        """Write the specification into its folder."""
        write_json(self.path, asdict(self))
        return self.path

    @staticmethod
    def read(path: Path) -> "JobSpec":
        """The specification in a file."""
        return JobSpec(**json.loads(path.read_text()))

    @property
    def metrics(self) -> Path:
        """A line of JSON per report: step, loss, learning_rate, grad_norm, rate (targets/s), memory (bytes), time."""
        return Path(self.folder) / "metrics.jsonl"

    @property
    def stop_file(self) -> Path:
        """Ranks take a checkpoint and leave when this exists."""
        return Path(self.folder) / "stop"

    @property
    def abandoned_file(self) -> Path:
        """Exists when ranks had to leave since nobody watched them; those that only wait for others say no more."""
        return Path(self.folder) / "abandoned"

    @property
    def work(self) -> Path:
        """Where checkpoints and the result lie; a writer that lost its right to write finds it gone."""
        return Path(self.folder) / self.attempt

    @property
    def output(self) -> Path:
        """The finished model's files."""
        return self.work / "output"

    def beat(self, rank: int) -> Path:
        """Where a rank says how far it is: step, phase, node, process, time."""
        return Path(self.folder) / f"beat-{rank}.json"

    def log(self, rank: int) -> Path:
        """What a supervised job's rank says, all attempts one after the other."""
        return Path(self.logs) / f"{self.role}-rank-{rank}.log"

    def stacks(self, rank: int) -> Path:
        """Where a rank that hangs leaves the stacks of its threads."""
        return Path(self.logs) / f"{self.role}-stacks-{rank}.txt"

    def collectives(self, rank: int) -> Path:
        """Where it leaves what it did with the others last (JSON of torch's flight recorder)."""
        return Path(self.logs) / f"{self.role}-collectives-{rank}.json"

    def outcome(self, rank: int) -> Path:
        """Where a rank says how it ended."""
        return Path(self.folder) / f"outcome-{rank}.json"

    def clear(self) -> None:
        """Remove what a failed job left half done: on a full disk nobody could write down why it failed."""
        for path in [self.output, *self.work.glob("checkpoints/.writing-*")]:
            shutil.rmtree(path, ignore_errors=True)
