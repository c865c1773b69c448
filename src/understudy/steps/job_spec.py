"""The job specification of a step, built from the recipe, the inputs and the platform."""

from collections.abc import Mapping
from pathlib import Path

from understudy.graph import EXAMPLES, RECORDS, Node
from understudy.jobs.payload import Evaluation, LogitCaching, Payload, Serving, TrainingJob
from understudy.jobs.specification import JobSpec
from understudy.jobs.trainings import training_settings
from understudy.launch.platform import platform
from understudy.models.user_code import user_code
from understudy.recipe import FactoryModel, Recipe, Resources, SavedLayers, SavedLogits, SavedModel
from understudy.recipe.learners import start_of
from understudy.recipe.logit_rules import temperature_of
from understudy.recipe.roles import TEACHER, section_of
from understudy.revision import build
from understudy.steps.step import Work


def training_spec(work: Work, node: Node, initial: Path | None) -> JobSpec:
    """The specification of a training.

    Args:
        work: the step's context.
        node: the training.
        initial: the files of the model that it starts from, if any: pretrained, or of an earlier stage.
    """
    start = start_of(work.recipe, node.training)
    payload = TrainingJob(
        **vars(training_settings(work.recipe, node)),
        examples=work.input(node.examples),
        initial=initial,
        start=SavedLayers(str(work.input(node.start)), start) if start else None,
        teachers=_teachers(work, node),
    )
    return _job_spec(work, work.step, payload, node.resources)


def _teachers(work: Work, node: Node) -> dict[str, SavedModel | SavedLogits]:
    """A training's teachers by name: the model, or its cached logits."""
    models = work.recipe.models
    return {
        name: SavedLogits(str(work.input(logits)))
        if logits
        else SavedModel(str(work.input(name)), models[section_of(name)])
        for name, logits in zip(node.teachers, node.logits or [""] * len(node.teachers), strict=True)
    }


def logits_spec(work: Work, node: Node) -> JobSpec:
    """The specification of the job that caches a teacher's logits."""
    (name,), recipe = node.teachers, work.recipe
    cache = recipe.logit_cache(name)
    assert cache is not None
    payload = LogitCaching(
        examples=str(work.input(node.examples)),
        teacher=SavedModel(str(work.input(name)), recipe.models[node.model]),
        name=name,
        cache=cache,
        temperature=temperature_of(recipe, name),
        digests={TEACHER: work.inputs[name], EXAMPLES: work.inputs[node.examples]},
        evaluate=recipe.evaluate,
    )
    return _job_spec(work, work.step, payload, node.resources)


def evaluation_spec(work: Work, roles: list[str], cached: Mapping[str, Path]) -> JobSpec:
    """The specification of the evaluation of models by role; `known` has the folders of cached results."""
    payload = Evaluation(
        examples=str(work.input(EXAMPLES)),
        records=str(work.input(RECORDS)) if RECORDS in work.inputs else None,
        models={role: str(work.input(role)) for role in roles},
        digests={role: work.inputs[role] for role in roles},
        recipe=work.recipe,
        known={role: str(folder) for role, folder in cached.items()},
    )
    return _job_spec(work, work.step, payload, "evaluate")


def serving_spec(work: Work, folder: Path) -> JobSpec:
    """The specification of one process that scores test examples through a model version."""
    return _job_spec(work, "serving", Serving(folder=str(folder)), "evaluate")


def _job_spec(work: Work, role: str, payload: Payload, section: str) -> JobSpec:
    current, resources = platform(), work.recipe.resources.by_job[section]
    if isinstance(payload, Serving):
        resources = resources.model_copy(update={"nodes": 1, "min_nodes": None, "processes": 1})
    return JobSpec(
        version=build(),
        role=role,
        section=f"resources.{section}",
        folder=str(current.job_folder(work.lease)),
        payload=payload,
        resources=resources,
        threads=_threads(resources),
        device=current.job_device(resources),
        logs=str(work.run.folder / "logs"),
        factories=_factories(work.recipe),
        profile=isinstance(payload, TrainingJob) and work.run.is_profiled,
        supervised=current.detached,
        launcher_timeout=current.launcher_timeout,
    )


def _threads(resources: Resources) -> int:
    """Threads of a process: as set, or else all cores for a single process, and 1 for each of several."""
    if resources.threads or resources.nodes * resources.processes > 1:
        return resources.threads or 1
    return platform().cores(resources)


def _factories(recipe: Recipe) -> dict[str, str]:
    """The source digests of the recipe's factories in this process, which computes keys: a rank's image may differ."""
    names = [model.factory for model in recipe.models.values() if isinstance(model, FactoryModel)]
    return {name: user_code(name.partition(":")[0]).source for name in names}
