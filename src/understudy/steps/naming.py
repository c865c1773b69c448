"""Check of the names in a pretrained student's training settings, before the teacher is trained.

For other students, a job's ranks check them (train/naming.py). A pretrained student's configuration is available
here, where its files are fetched.
"""

from understudy.models.facts import read_facts
from understudy.models.hub import Unreachable
from understudy.models.pretrained import foreseen
from understudy.recipe import PretrainedModel
from understudy.steps.step import Work


def check_student_names(work: Work) -> None:
    """Check that a pretrained student has the layers and parameters that its training settings name.

    Raises:
        InputError: it does not have them, or the model does not fit the recipe.
    """
    student, objectives = work.recipe.student, work.recipe.objectives
    model, train = student.model, student.train
    if not isinstance(model, PretrainedModel) or not (train.lora or train.optimizer.no_decay):
        return
    if model.trust_remote_code:  # only jobs run this code: this process has credentials
        return
    from understudy.models.build import empty_model
    from understudy.objectives.objective import Context, extras_of, objective
    from understudy.train.naming import check_names

    try:
        description = foreseen(model, read_facts(work.input("examples")), "student.model", "new")
    except Unreachable:  # an error only when it is fetched, unless it is cached by then
        return
    # Only ranks know the teacher's shapes, on which the parameters of an objective with extras depend.
    student_objective = None if extras_of(objectives) else objective(objectives, Context(train, work.recipe.seed))
    check_names(empty_model(description, "student.model"), student_objective, train, "student.train")
