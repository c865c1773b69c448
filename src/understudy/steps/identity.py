"""The parts of a step key for a trained model: its initial state, its training and its objectives."""

from collections.abc import Mapping

from understudy.errors import InputError
from understudy.launch.platform import platform
from understudy.models import pretrained
from understudy.models.user_code import user_code
from understudy.recipe import FactoryModel, Model, Objectives, PretrainedModel, Resources, Train
from understudy.recipe.objectives import OBJECTIVES
from understudy.recipe.tasks import TASKS
from understudy.revision import Revision, revision
from understudy.store import Store

TRAINED_BY = ("open_split", "wrap", "AUTO_MODEL", "PEFT_TYPE")
"""The parts of a task's module that decide a trained model."""
MEASURED_BY = ("wrap", "AUTO_MODEL", "METRICS", "LABELLED", "targets", "lengths", "test_split")
"""The parts of a task's module that decide a model's measures."""


def task_code(task: str, names: tuple[str, ...]) -> Revision:
    """The revision of parts of a task's module, which is loaded by name: no step's imports reach it."""
    return revision((), parts=tuple((TASKS[task], name) for name in names))


def model_identity(model: Model, store: Store, section: str) -> Mapping[str, object]:
    """The parts of a step key for a model's initial state: section, referenced content, and the reading code."""
    if isinstance(model, PretrainedModel):
        settings = model.model_dump(mode="json", exclude={"pretrained", "revision"})  # not its location
        content = pretrained.identity(model, store.fingerprints, section)
        return {**settings, "content": content, "code": revision(("understudy.models.pretrained",))}
    settings = model.model_dump(mode="json")
    if isinstance(model, FactoryModel):
        try:
            return {**settings, "content": user_code(model.factory.partition(":")[0]).identity}
        except ModuleNotFoundError as error:
            raise InputError(f"{section}.factory: there is no module {error}; is PYTHONPATH set?") from error
    return settings


def training_identity(train: Train | None, resources: Resources, seed: int) -> Mapping[str, object]:
    """The settings of a training that determine its numbers.

    The checkpoint interval counts only with a guard, which goes back to checkpoints. The number of threads does not
    count: it changes the order of sums, and so the last bits, from machine to machine. No model is retrained for this.
    """
    if train is None:
        return {}
    settings = train.model_dump(mode="json", exclude=set() if train.guard else {"checkpoint_every"})
    least = [resources.min_nodes] if resources.min_nodes else []
    world = [resources.nodes, resources.processes, *least]
    return {"seed": seed, "train": settings, "world": world, "device": platform().job_device(resources)}


def objectives_identity(objectives: Objectives) -> Mapping[str, object]:
    """The objectives and their code, which is loaded by name: the imports of a training do not reach it."""
    code = {objective.type: revision((OBJECTIVES[objective.type],)) for objective in objectives}
    return {"objectives": [objective.model_dump(mode="json") for objective in objectives], "objective_code": code}
