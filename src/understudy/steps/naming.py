"""Check of the names in a pretrained student's training settings, before the teacher is trained.

For other students, a job's ranks check them (train/naming.py). A pretrained student's configuration is available
here, where its files are fetched.
"""

from pathlib import Path

from understudy.models.facts import read_facts
from understudy.models.hub import Unreachable
from understudy.models.pretrained import foreseen
from understudy.recipe import PretrainedModel
from understudy.recipe.learners import paths_of
from understudy.recipe.roles import STUDENT
from understudy.steps.step import Work


def check_student_names(work: Work, examples: Path) -> None:
    """Check that a pretrained student has the layers and parameters that its training settings name.

    Raises:
        InputError: it does not have them, or the model does not fit the recipe.
    """
    first = paths_of(work.recipe, STUDENT)[0]
    objectives, where = work.recipe.objectives_of(first), f"{first}.train"
    model, train = work.recipe.student.model, work.recipe.trainings[first].train
    if not isinstance(model, PretrainedModel) or not (train.lora or train.optimizer.no_decay):
        return
    if model.trust_remote_code:  # only jobs run this code: this process has credentials
        return
    from torch import nn

    from understudy.models.build import empty_model
    from understudy.models.outputs import OutputShapes
    from understudy.objectives.objective import Context, extras_of, objective
    from understudy.train.naming import check_names

    try:
        description = foreseen(model, read_facts(examples), "student.model", "new")
    except Unreachable:  # an error only when it is fetched, unless it is cached by then
        return
    learns: nn.Module = nn.Module()
    if not extras_of(objectives):
        names = dict.fromkeys(work.recipe.teachers_of(first), OutputShapes())
        learns = objective(objectives, Context(train, work.recipe.seed, teachers=names))
    elif train.optimizer.no_decay:  # ranks know the teacher's shapes, and with them the objectives' parameters
        train = train.model_copy(update={"optimizer": train.optimizer.model_copy(update={"no_decay": None})})
    check_names(empty_model(description, "student.model"), learns, train, where)
