"""Job specifications for tests."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from understudy.jobs.specification import JobSpec


def job_spec(folder: Path | str, **changes: Any) -> JobSpec:
    """A job of one process in a folder; changes may be given as JSON has them."""
    fields = {
        "version": "0",
        "role": "teacher",
        "folder": str(folder),
        "examples": f"{folder}/examples",
        "initial": None,
        "teacher": None,
        "teacher_model": None,
        "model": {"type": "vit", "config": {"hidden_size": 8}},
        "train": {"steps": 1},
        "objectives": [{"type": "labels"}],
        "seed": 0,
        "resources": {},
        "threads": 1,
        "device": "cpu",
        "logs": f"{folder}/logs",
    }
    return TypeAdapter(JobSpec).validate_python({**fields, **changes})


HOME = "/var/lib/understudy/home"
WORK = f"{HOME}/store/work/0123"


def on_the_claim(job: JobSpec) -> JobSpec:
    """The same job where a cluster's launcher has it."""
    logs, examples = f"{HOME}/store/runs/run/logs", f"{HOME}/store/objects/{'e' * 64}"
    return replace(job, folder=f"{WORK}/job", logs=logs, examples=examples)


def with_resources(job: JobSpec, **changes: Any) -> JobSpec:
    """The same job with other resources: nodes, min_nodes, processes, hang_timeout."""
    return replace(job, resources=job.resources.model_copy(update=changes))
