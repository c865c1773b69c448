"""The objective `logits`: the teacher's softened distribution (Hinton et al. 2015)."""

from torch import Tensor
from torch.nn import functional

from understudy.data.loader import IGNORED
from understudy.objectives.batch import Batch
from understudy.objectives.objective import Objective, PositionObjective
from understudy.recipe import LogitsObjective, Train


class Logits(PositionObjective):
    """T^2 * KL(teacher || student) at a temperature T (Hinton et al. 2015).

    The gradient of the KL term with respect to the logits shrinks as 1 / T^2. The factor T^2 compensates, so that the
    weight between soft and hard targets means the same at every temperature (section 2). The gradient is then T times
    the difference of the softened distributions.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self._temperature = temperature

    def losses(self, student: Tensor, teacher: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """Losses (n,) by position, and their gradients (n, K).

        A class with a teacher's probability of 0 (a logit of minus infinity) adds 0, the limit of p log p. The loss is
        infinite where only the student's probability is 0.
        """
        assert teacher is not None
        temperature, counted = self._temperature, batch.labels != IGNORED
        log_student = functional.log_softmax(student / temperature, dim=-1)
        log_teacher = functional.log_softmax(teacher / temperature, dim=-1)
        likelihoods = log_teacher.exp()
        terms = (likelihoods * (log_teacher - log_student)).masked_fill_(likelihoods == 0, 0)
        loss = temperature**2 * terms.sum(-1)
        gradient = (log_student.exp() - likelihoods).mul_(temperature)
        return loss.where(counted, 0), gradient.masked_fill_(~counted[:, None], 0)


def objective(section: LogitsObjective, _train: Train) -> Objective:
    """The objective that a recipe's section configures."""
    return Logits(section.temperature)
