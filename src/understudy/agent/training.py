"""A job specification as a training, and what the training asks of its surroundings: heartbeats, attempts, reports."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from understudy.agent.eviction import is_evicted, record_attempt
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.errors import disk_errors
from understudy.jobs import attempts
from understudy.jobs.specification import JobSpec
from understudy.train.job import Callbacks, Report, TrainingJob


def training_job(spec: JobSpec) -> TrainingJob:
    """What the job trains."""
    return TrainingJob(
        model=spec.model,
        section="teacher.model" if spec.role == "teacher" else "student.model",
        train=spec.train,
        objectives=spec.objectives,
        seed=spec.seed,
        examples=Path(spec.examples),
        initial=Path(spec.initial) if spec.initial else None,
        teacher=Path(spec.teacher) if spec.teacher else None,
        teacher_model=spec.teacher_model,
        others=spec.others,
        asked=spec.asked,
        processes=spec.processes,
        threads=spec.threads,
        device=spec.device,
    )


def callbacks(spec: JobSpec, heartbeat: HeartbeatWriter) -> Callbacks:
    """What a rank's training asks, answered by the job's folder and this node."""

    def join(attempt: str) -> Path:
        if attempt:
            heartbeat.join(replace(spec, attempt=attempt))
            record_attempt(attempt)
        return Path(spec.folder) / attempt

    return Callbacks(
        heartbeat=heartbeat,
        must_stop=lambda: spec.stop_file.exists() or is_evicted(),
        begin_attempt=lambda world_size: attempts.begin(spec, world_size) if spec.supervised else "",
        join_attempt=join,
        report=lambda report: _append(report, spec.metrics, Path(spec.folder) / heartbeat.attempt),
    )


def _append(report: Report, metrics: Path, work: Path) -> None:
    """Add a report to the job's metrics, which the launcher shows and MLflow records."""
    if not work.is_dir():
        return  # another attempt is running; the next checkpoint will fail with Fenced
    with disk_errors(metrics), metrics.open("a") as stream:
        stream.write(json.dumps(asdict(report)) + "\n")
