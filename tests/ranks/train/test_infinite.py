"""A student with a logit of minus infinity where its teacher or labels have none: the error explains the loss."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_ranks
from tests.ranks.train.test_parity import DISTILL
from understudy.errors import UnderstudyError
from understudy.jobs.specification import JobSpec


class Forbids(nn.Module):
    """A classifier of 8 x 8 images whose first logit is minus infinity."""

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(64, num_labels)

    def forward(self, images: Tensor, **_: bool) -> Tensor:
        logits: Tensor = self.linear(images.flatten(1))
        return torch.cat([torch.full_like(logits[:, :1], -torch.inf), logits[:, 1:]], dim=1)


@pytest.mark.parametrize("guard", [None, {"rollback_after": 1}])
def test_an_infinite_loss_is_said_in_words(ranks: Any, tmp_path: Path, image_examples: Path, guard: Any) -> None:
    teacher = jobs.spec(tmp_path / "teacher", image_examples, jobs.VIT, train={"steps": 1})
    ranks.run(1, train_ranks, teacher)
    changes: dict[str, Any] = {"teacher": str(teacher.output), "objectives": DISTILL, "teacher_model": jobs.VIT}
    model = {"factory": f"{__name__}:Forbids", "kwargs": {}}
    job = jobs.spec(tmp_path / "student", image_examples, model, train={"guard": guard} if guard else {}, **changes)
    error = ranks.run(1, failure, job)[0]
    assert "infinite at step " in error or "its loss is inf" in error
    assert "minus infinity for a label, or for an output that its teacher gives a probability above 0" in error


def failure(job: JobSpec) -> str:
    with pytest.raises(UnderstudyError) as caught:
        train_ranks(job)
    torch.distributed.destroy_process_group()
    return str(caught.value)
