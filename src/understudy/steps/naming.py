"""What the training of a pretrained student names, looked for before the teacher is trained.

A job's ranks look for what other students' trainings name (train/naming.py). A pretrained one's configuration is where
its files are fetched: here.
"""

from understudy.models.facts import read_facts
from understudy.models.hub import Unreachable
from understudy.models.pretrained import foreseen
from understudy.recipe import PretrainedModel
from understudy.steps.step import Work


def check_student_names(work: Work) -> None:
    """Whether a pretrained student has the layers and parameters that its training names.

    Raises:
        InputError: it has not, or cannot be what the recipe says.
    """
    student = work.recipe.student
    model, train = student.model, student.train
    if not isinstance(model, PretrainedModel) or not (train.lora or train.optimizer.no_decay):
        return
    if model.trust_remote_code:  # which is for jobs to run: here are credentials
        return
    from understudy.distill.objectives import objective
    from understudy.models.build import empty_model
    from understudy.train.naming import check_names

    try:
        description = foreseen(model, read_facts(work.input("examples")), "student.model", "new")
    except Unreachable:  # which counts when it is fetched, if it is not remembered then
        return
    check_names(
        empty_model(description, "student.model"), objective(work.recipe.objectives, train), train, "student.train"
    )
