"""Examples -> the control: the student without its teacher, with the same budget and the same seed."""

from understudy.recipe import LABELS
from understudy.revision import TRAINING
from understudy.steps.identity import student_identity
from understudy.steps.job_spec import student_spec
from understudy.steps.step import Step, Work
from understudy.steps.training import train


def _train_alone(work: Work) -> None:
    train(work, student_spec(work, "control", LABELS))


CONTROL = Step(
    name="control",
    kind="model",
    work=_train_alone,
    modules=TRAINING,
    section=student_identity,
    inputs=("examples",),
)
