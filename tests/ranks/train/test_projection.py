"""An objective with parameters of its own: hidden states of student and teacher, compared through a projection."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.ranks.train import jobs
from tests.unit.jobs.specs import training as training_of
from understudy.agent.training import training_job
from understudy.data.loader import open_split
from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.models.facts import WEIGHTS
from understudy.models.outputs import Outputs
from understudy.objectives.batch import Batch
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.objective import Context, Objective, WeightedSum
from understudy.train import job as training
from understudy.train import models

WIDTH = jobs.VIT["config"]["hidden_size"]
LEARNED = "objective.parts.0.projection.weight"


class Projected(Objective):
    """The squared distance of the last hidden states, the student's projected."""

    extras = frozenset({"hidden_states"})

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.projection = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        assert teacher is not None
        distance = self.projection(student.hidden_states[-1]) - teacher.hidden_states[-1]
        return distance.square().mean(dim=(1, 2)).sum()


def projected(_sections: Any, context: Context) -> Objective:
    return WeightedSum([(0.5, Projected()), (1.0, LabelsObjective(type="labels").build(context))])


def train(job: JobSpec) -> None:
    """What one rank of the job does."""
    patch = pytest.MonkeyPatch()
    patch.setattr(models, "extras_of", lambda sections: Projected.extras)
    patch.setattr(training, "objective", projected)
    try:
        jobs.train_ranks(job)
    finally:
        patch.undo()


def losses(job: JobSpec) -> list[float]:
    import json

    return [point["loss"] for point in json.loads((job.output / "history.json").read_text())]


def checkpoint(job: JobSpec) -> dict[str, Any]:
    from torch.distributed.checkpoint import FileSystemReader

    newest = max((job.work / "checkpoints").glob("step-*"), key=os.path.getmtime)
    return dict(FileSystemReader(newest).read_metadata().state_dict_metadata)


@pytest.mark.parametrize(("strategy", "processes"), [("ddp", 2), ("fsdp", 2)])
def test_it_is_trained_checkpointed_spread_and_left_out_of_the_result(
    ranks: Any, tmp_path: Path, image_examples: Path, strategy: str, processes: int
) -> None:
    teacher = jobs.spec(tmp_path / "teacher", image_examples, jobs.VIT)
    ranks.run(1, jobs.train_ranks, teacher)
    given: dict[str, Any] = {"teacher": str(teacher.output), "seed": 2}
    alone = jobs.spec(tmp_path / "alone", image_examples, jobs.VIT, **given)
    spread = jobs.spec(tmp_path / "spread", image_examples, jobs.VIT, processes, train={"strategy": strategy}, **given)
    ranks.run(1, train, alone)
    ranks.run(processes, train, spread)
    np.testing.assert_allclose(losses(spread), losses(alone), rtol=1e-4)
    assert f"model.{LEARNED}" in checkpoint(spread)
    assert load_file(spread.output / WEIGHTS).keys() == load_file(teacher.output / WEIGHTS).keys()


def test_it_goes_on_from_its_checkpoint(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    teacher = jobs.spec(tmp_path / "teacher", image_examples, jobs.VIT)
    ranks.run(1, jobs.train_ranks, teacher)
    given: dict[str, Any] = {"teacher": str(teacher.output), "seed": 2, "train": {"checkpoint_every": 3}}
    whole = jobs.spec(tmp_path / "whole", image_examples, jobs.VIT, **given)
    ranks.run(1, train, whole)
    parted = jobs.spec(tmp_path / "parted", image_examples, jobs.VIT, **given)
    parted.stop_file.touch()
    with pytest.raises(AssertionError, match="stopped at step"):
        ranks.run(1, train, parted)
    parted.stop_file.unlink()
    ranks.run(1, train, parted)
    assert losses(parted) == losses(whole)
    assert (parted.output / WEIGHTS).read_bytes() == (whole.output / WEIGHTS).read_bytes()


class Plain(nn.Module):
    """Logits and nothing else, whatever it is asked for."""

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, num_labels))

    def forward(self, images: Tensor, **asked: bool) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


def test_a_student_that_cannot_give_what_is_asked_of_it_is_refused_before_the_teacher_is_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image_examples: Path
) -> None:
    plain = {"factory": f"{__name__}:Plain", "kwargs": {}}
    spec = jobs.spec(tmp_path, image_examples, jobs.VIT, others={"student.model": plain}, asked=[{"type": "logits"}])
    asked, split = training_job(spec, training_of(spec)), open_split(image_examples, "train")
    models.try_others(asked, split)
    monkeypatch.setattr(models, "extras_of", lambda sections: Projected.extras)
    with pytest.raises(InputError, match=r"^student\.model: .* was asked for hidden_states and gives none"):
        models.try_others(asked, split)
