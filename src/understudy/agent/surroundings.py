"""A rank's interface to its job's folder and its node: attempts, stop requests, progress reports."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from understudy.agent.eviction import is_evicted, record_attempt
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.errors import disk_errors
from understudy.jobs import attempts
from understudy.jobs.specification import JobSpec


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of one rank."""

    spec: JobSpec
    heartbeat: HeartbeatWriter

    def begin_attempt(self, world_size: int) -> str:
        """Begin the job's next attempt on the first rank, and return its name: '' if no launcher supervises."""
        return attempts.begin(self.spec, world_size) if self.spec.supervised else ""

    def join_attempt(self, attempt: str) -> Path:
        """Join an attempt, and return its folder."""
        if attempt:
            self.heartbeat.join(replace(self.spec, attempt=attempt))
            record_attempt(attempt)
        return Path(self.spec.folder) / attempt

    def must_stop(self) -> bool:
        """Whether the ranks were requested to end."""
        return self.spec.stop_file.exists() or is_evicted()

    def report(self, values: Mapping[str, object]) -> None:
        """Append a line to the job's metrics, which the launcher shows."""
        if not (Path(self.spec.folder) / self.heartbeat.attempt).is_dir():
            return  # another attempt is running; the next checkpoint will fail with Fenced
        with disk_errors(self.spec.metrics), self.spec.metrics.open("a") as stream:
            stream.write(json.dumps(values) + "\n")
