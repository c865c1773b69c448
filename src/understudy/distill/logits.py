"""The objective `logits`: the teacher's softened distribution (Hinton et al. 2015)."""

from torch import Tensor
from torch.nn import functional

from understudy.data.loader import IGNORED
from understudy.distill.objectives import Batch, Objective
from understudy.models.outputs import Outputs
from understudy.recipe import LogitsObjective, Train


class Logits(Objective):
    """T^2 * KL(teacher || student) at a temperature T (Hinton et al. 2015)."""

    by_position = True

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self._temperature = temperature

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The sum over targets."""
        assert teacher is not None
        return soft_cross_entropy(student.logits, teacher.logits, batch.labels, self._temperature)


def soft_cross_entropy(student: Tensor, teacher: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """T^2 * KL(teacher || student) of the distributions at a temperature, summed over the targets.

    The gradient of the KL term with respect to the logits shrinks as 1 / T^2; the factor undoes that, so that the
    weight between soft and hard part means the same at every temperature (Hinton et al. 2015, section 2).

    Args:
        student: logits (..., K).
        teacher: logits (..., K) of the same positions.
        labels: (...); positions without a target do not count.
        temperature: T > 0.
    """
    student, teacher = student.float().flatten(0, -2), teacher.float().flatten(0, -2)
    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = functional.log_softmax(teacher / temperature, dim=-1)
    divergence = functional.kl_div(log_student, log_teacher, reduction="none", log_target=True).sum(-1)
    return temperature**2 * (divergence * (labels.flatten() != IGNORED)).sum()


def objective(section: LogitsObjective, _train: Train) -> Objective:
    """The objective of a section, in a training."""
    return Logits(section.temperature)
