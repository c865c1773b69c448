"""Job specifications for tests."""

from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pydantic import TypeAdapter

from understudy.jobs.payload import TrainingJob, TrainingSettings
from understudy.jobs.specification import JobSpec
from understudy.recipe import ArchitectureModel, SavedModel, Train
from understudy.recipe.objectives import without_teacher


def job_spec(folder: Path | str, **changes: Any) -> JobSpec:
    """A training job of one process in a folder; changes, of the payload too, may be given as JSON has them.

    `teacher` is the folder of its only teacher, and `teacher_model` that one's section.
    """
    payload = {
        "kind": "training",
        "learner": "teacher",
        "examples": f"{folder}/examples",
        "initial": None,
        "model": {"type": "vit", "config": {"hidden_size": 8}},
        "train": {"steps": 1},
        "objectives": [{"type": "labels"}],
        "seed": 0,
    }
    values = {
        "version": "0",
        "role": "teacher",
        "folder": str(folder),
        "payload": payload,
        "resources": {},
        "section": "resources.teacher",
        "threads": 1,
        "device": "cpu",
        "logs": f"{folder}/logs",
    }
    if changes.get("role") in ("control", "distill"):
        payload["learner"], values["section"] = "student", "resources.distill"
    payload["path"] = payload["learner"]
    teacher, model = changes.pop("teacher", None), changes.pop("teacher_model", None)
    if teacher:
        changes["teachers"] = {
            "teacher": {"folder": str(teacher), "model": model or changes.get("model", payload["model"])}
        }
    names = {field.name for field in fields(TrainingJob)}
    payload.update({name: value for name, value in changes.items() if name in names})
    values.update({name: value for name, value in changes.items() if name not in names})
    return TypeAdapter(JobSpec).validate_python(values)


def evaluation_spec(folder: Path | str, **changes: Any) -> JobSpec:
    """A job that measures a teacher and a student; changes are the payload's."""
    values = yaml.safe_load(Path("recipes/digits.yaml").read_text(encoding="utf-8"))
    payload = {
        "kind": "evaluation",
        "examples": f"{folder}/examples",
        "records": None,
        "models": {role: f"{folder}/{role}" for role in ("teacher", "student")},
        "digests": {"teacher": "7" * 64, "student": "5" * 64},
        "recipe": values,
        **changes,
    }
    training = TypeAdapter(JobSpec).dump_python(job_spec(folder), mode="json", by_alias=True)
    return TypeAdapter(JobSpec).validate_python(
        {**training, "role": "evaluate", "section": "resources.evaluate", "payload": payload}
    )


def training_settings(train: Train, **changes: Any) -> TrainingSettings:
    """A student's training, which learns from the labels alone unless it is changed."""
    values = {"model": ArchitectureModel(type="llama"), "objectives": without_teacher(), "seed": 0, **changes}
    return TrainingSettings(learner="student", path="student", train=train, **values)


def training(job: JobSpec) -> TrainingJob:
    """The model of a training job."""
    assert isinstance(job.payload, TrainingJob)
    return job.payload


def with_payload(job: JobSpec, **changes: Any) -> JobSpec:
    """The same training job of something else; `teacher` is the folder of its only teacher."""
    payload = training(job)
    if teacher := changes.pop("teacher", None):
        earlier = payload.teachers.get("teacher")
        model = earlier.model if isinstance(earlier, SavedModel) else payload.model
        changes["teachers"] = {"teacher": SavedModel(str(teacher), model)}
    return replace(job, payload=replace(payload, **changes))


HOME = "/var/lib/understudy/home"
WORK = str(PurePosixPath(HOME, "store", "work", "0123"))


def on_the_claim(job: JobSpec) -> JobSpec:
    """The same job where a cluster's launcher has it."""
    payload = job.payload.reading({**job.payload.reads, "examples": f"{HOME}/store/objects/{'e' * 64}"})
    return replace(job, folder=f"{WORK}/job", logs=f"{HOME}/store/runs/run/logs", payload=payload)


def with_resources(job: JobSpec, **changes: Any) -> JobSpec:
    """The same job with other resources: nodes, min_nodes, processes, hang_timeout."""
    return replace(job, resources=job.resources.model_copy(update=changes))
