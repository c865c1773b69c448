"""The trainings of a recipe: each with its settings from all of the recipe's sections."""

from understudy.graph import Node
from understudy.jobs.payload import TrainingSettings
from understudy.recipe import Model, Objectives, PretrainedModel, Recipe, Start
from understudy.recipe.learners import paths_of, starts
from understudy.recipe.objectives import without_teacher
from understudy.recipe.roles import STUDENT


def training_settings(recipe: Recipe, node: Node) -> TrainingSettings:
    """The settings of a node that trains a model."""
    learner, first = recipe.learners[node.learner], paths_of(recipe, STUDENT)[0]
    return TrainingSettings(
        learner=node.learner,
        path=node.training,
        model=recipe.models[node.model],
        train=recipe.trainings[node.training].train,
        objectives=objectives(recipe, node),
        seed=recipe.seed,
        teacher_precision=learner.teacher_precision,
        teacher_shards=learner.teacher_shards,
        later_models=_later_models(recipe, node),
        later_starts=_later_starts(recipe, node),
        student_objectives=recipe.objectives_of(first),
        student_teachers=recipe.teachers_of(first),
        student_train=None if node.is_student else recipe.trainings[first].train,
        student_world=(recipe.resources.distill.nodes, recipe.resources.distill.processes),
        measured_in=recipe.evaluate.precision,
    )


def objectives(recipe: Recipe, node: Node) -> Objectives:
    """The objectives of a training: without a teacher, the labels."""
    return recipe.objectives_of(node.training) if node.teachers else without_teacher()


def _later_models(recipe: Recipe, node: Node) -> dict[str, Model]:
    """The recipe's models that this job does not train, without pretrained ones, which are checked when fetched."""
    if node.is_student and not node.is_control:  # no other model is trained after it
        return {}
    other_models = {section: model for section, model in recipe.models.items() if section != node.model}
    return {section: model for section, model in other_models.items() if not isinstance(model, PretrainedModel)}


def _later_starts(recipe: Recipe, node: Node) -> dict[str, Start]:
    """The layers that later jobs' models start from."""
    later = _later_models(recipe, node)
    return {section: start for section, start in starts(recipe).items() if f"{section}.model" in later}
