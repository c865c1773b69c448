"""The job specification of a step, built from the recipe, the inputs and the platform."""

from collections.abc import Mapping
from pathlib import Path

from understudy.jobs.payload import Evaluation, Payload, Serving, Training
from understudy.jobs.specification import JobSpec, Role
from understudy.launch.platform import platform
from understudy.models.user_code import user_code
from understudy.recipe import FactoryModel, Model, Objectives, PretrainedModel, Recipe, Resources, Train
from understudy.revision import build
from understudy.steps.fetching import fetched_model
from understudy.steps.step import Work


def student_spec(work: Work, role: Role, objectives: Objectives) -> JobSpec:
    """The specification of the training of the student, or of the control, which is trained on the labels alone."""
    student = work.recipe.student
    initial = fetched_model(work, student.model, "student.model", "new")
    return training_spec(work, role, student.model, student.train, work.recipe.resources.distill, initial, objectives)


def training_spec(
    work: Work,
    role: Role,
    model: Model,
    train: Train,
    resources: Resources,
    initial: Path | None,
    objectives: Objectives,
) -> JobSpec:
    """The specification of a training of this step."""
    payload = Training(
        examples=str(work.input("examples")),
        initial=str(initial) if initial else None,
        teacher=str(work.input("teacher")) if "teacher" in work.inputs else None,
        teacher_model=work.recipe.teacher.model if "teacher" in work.inputs else None,
        teacher_precision=work.recipe.student.teacher_precision,
        teacher_shards=work.recipe.student.teacher_shards,
        model=model,
        train=train,
        objectives=objectives,
        seed=work.recipe.seed,
        others=_others(work.recipe, role),
        asked=work.recipe.objectives,
        student_train=work.recipe.student.train if role == "teacher" else None,
        student_world=(work.recipe.resources.distill.nodes, work.recipe.resources.distill.processes),
        measured_in=work.recipe.evaluate.precision,
    )
    return _job_spec(work, role, payload, resources)


def evaluation_spec(work: Work, roles: list[str], known: Mapping[str, Path]) -> JobSpec:
    """The specification of the evaluation of models by role; `known` has the folders of cached results."""
    payload = Evaluation(
        examples=str(work.input("examples")),
        records=str(work.input("records")) if "records" in work.inputs else None,
        models={role: str(work.input(role)) for role in roles},
        digests={role: work.inputs[role] for role in roles},
        recipe=work.recipe,
        known={role: str(folder) for role, folder in known.items()},
    )
    return _job_spec(work, "evaluate", payload, work.recipe.resources.by_job["evaluate"])


def serving_spec(work: Work, folder: Path) -> JobSpec:
    """The specification of one process that scores test examples through a model version."""
    alone = {"nodes": 1, "min_nodes": None, "processes": 1}
    resources = work.recipe.resources.by_job["evaluate"].model_copy(update=alone)
    return _job_spec(work, "serving", Serving(folder=str(folder)), resources)


def _job_spec(work: Work, role: Role, payload: Payload, resources: Resources) -> JobSpec:
    here = platform()
    return JobSpec(
        version=build(),
        role=role,
        folder=str(here.job_folder(work.lease)),
        payload=payload,
        resources=resources,
        threads=_threads(resources),
        device=here.job_device(resources),
        logs=str(work.run.folder / "logs"),
        factories=_factories(work.recipe),
        profile=isinstance(payload, Training) and work.run.is_profiled,
        supervised=here.detached,
        launcher_timeout=here.launcher_timeout,
    )


def _threads(resources: Resources) -> int:
    """Threads of a process: as set, or else all cores for a single process, and 1 for each of several."""
    if resources.threads or resources.nodes * resources.processes > 1:
        return resources.threads or 1
    return platform().cores(resources)


def _others(recipe: Recipe, role: Role) -> dict[str, Model]:
    """The recipe's models that this job does not train, without pretrained ones, which are checked when fetched."""
    if role == "distill":  # no training comes after it
        return {}
    own = "teacher.model" if role == "teacher" else "student.model"
    others = {where: model for where, model in recipe.models.items() if where != own}
    return {where: model for where, model in others.items() if not isinstance(model, PretrainedModel)}


def _factories(recipe: Recipe) -> dict[str, str]:
    """The source digests of the recipe's factories in this process, which computes keys: a rank's image may differ."""
    names = [model.factory for model in recipe.models.values() if isinstance(model, FactoryModel)]
    return {name: user_code(name.partition(":")[0]).source for name in names}
