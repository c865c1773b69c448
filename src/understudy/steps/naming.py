"""Check of the names in a pretrained student's training settings, before the teacher is trained.

For other students, a job's ranks check them (train/naming.py). A pretrained student's configuration is available
here, where its files are fetched.
"""

from pathlib import Path

from understudy.models.facts import read_facts
from understudy.models.hub import Unreachable
from understudy.models.pretrained import expected_description
from understudy.recipe import PretrainedModel
from understudy.recipe.learners import paths_of
from understudy.recipe.roles import STUDENT, section_of
from understudy.steps.step import Work


def check_student_names(work: Work, examples: Path) -> None:
    """Check that a pretrained student has the layers and parameters that its training settings name.

    Raises:
        InputError: it does not have them, or the model does not fit the recipe.
    """
    first = paths_of(work.recipe, STUDENT)[0]
    objectives, section = work.recipe.objectives_of(first), f"{first}.train"
    model, train = work.recipe.student.model, work.recipe.trainings[first].train
    if not isinstance(model, PretrainedModel) or not (train.lora or train.optimizer.no_decay):
        return
    if model.trust_remote_code:  # only jobs run this code: this process has credentials
        return
    from understudy.models.build import empty_model
    from understudy.models.outputs import OutputShapes
    from understudy.objectives.objective import Context, extras_of, objective
    from understudy.train.naming import check_names

    try:
        description = expected_description(model, read_facts(examples), section_of(STUDENT), "new")
    except Unreachable:  # an error only when it is fetched, unless it is cached by then
        return
    # Only ranks know the teachers' shapes, on which the parameters of an objective with extras depend.
    teachers = dict.fromkeys(work.recipe.teachers_of(first), OutputShapes())
    context = Context(train, work.recipe.seed, teachers=teachers)
    student_objective = None if extras_of(objectives) else objective(objectives, context)
    check_names(empty_model(description, section_of(STUDENT)), student_objective, train, section)
