"""An objective with parameters: they are trained under each strategy, checkpointed, and left out of the result."""

import os
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_parity import assert_same_training
from tests.ranks.train.test_resume import assert_goes_on
from tests.ranks.train.test_savers import train_compiled
from tests.unit.jobs.specs import training as training_of
from understudy.data.loader import open_split
from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.models.facts import WEIGHTS
from understudy.train.later_models import try_later_models

OBJECTIVES = [{"type": "hidden_states", "weight": 0.5}, {"type": "labels"}]
MODELS = {"images": jobs.VIT, "texts": jobs.LLAMA}
LARGER: dict[str, dict[str, Any]] = {
    "images": {"hidden_size": 24, "num_hidden_layers": 4},
    "texts": {"hidden_size": 64, "num_hidden_layers": 4},
}


@pytest.fixture
def examples(request: pytest.FixtureRequest, task: str) -> Path:
    folder: Path = request.getfixturevalue({"images": "image_examples", "texts": "text_examples"}[task])
    return folder


@pytest.fixture
def taught(ranks: Any, tmp_path: Path, task: str, examples: Path) -> dict[str, Any]:
    """Changes of a job that make it the training of a student, by a wider and deeper teacher."""
    model = {**MODELS[task], "config": {**MODELS[task]["config"], **LARGER[task]}}
    teacher = jobs.spec(tmp_path / "teacher", examples, model)
    ranks.run(1, train_ranks, teacher)
    return {"teacher": str(teacher.output), "teacher_model": model, "objectives": OBJECTIVES, "seed": 2}


def checkpointed(job: JobSpec) -> set[str]:
    """The names in the newest checkpoint."""
    from torch.distributed.checkpoint import FileSystemReader

    newest = max((job.work / "checkpoints").glob("step-*"), key=os.path.getmtime)
    return set(FileSystemReader(newest).read_metadata().state_dict_metadata)


@pytest.mark.parametrize(
    ("task", "strategy", "processes", "settings"),
    tiers(
        [
            ("images", "ddp", 2, {}),
            ("images", "fsdp", 2, {}),
            ("texts", "tp", 2, {}),
            ("texts", "cp", 2, {}),
        ],
        [
            ("texts", "zero1", 2, {"gradient_accumulation_steps": 2}),
            ("texts", {"dp_replicate": 2, "dp_shard": 2}, 4, {"gradient_accumulation_steps": 2}),
            ("texts", {"dp_replicate": 2, "tp": 2}, 4, {}),
            ("texts", "single", 1, {"activation_checkpointing": "full"}),
            ("texts", "fsdp", 2, {"activation_checkpointing": "selective"}),
        ],
    ),
)
def test_each_strategy_trains_it_alike(
    ranks: Any,
    tmp_path: Path,
    task: str,
    examples: Path,
    taught: dict[str, Any],
    strategy: Any,
    processes: int,
    settings: dict[str, Any],
) -> None:
    alone = jobs.spec(tmp_path / "alone", examples, MODELS[task], **taught)
    train = {"strategy": strategy, **settings}
    spread = jobs.spec(tmp_path / "spread", examples, MODELS[task], processes, train=train, **taught)
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)
    assert {f"model.objective.parts.0.projections.{layer}.weight" for layer in (0, 1)} <= checkpointed(spread)
    assert not any("projections" in name for name in load_file(spread.output / WEIGHTS))


@pytest.mark.full
@pytest.mark.parametrize("task", ["texts"])
def test_compiled_blocks_train_it_alike(
    ranks: Any, tmp_path: Path, task: str, examples: Path, taught: dict[str, Any]
) -> None:
    alone = jobs.spec(tmp_path / "alone", examples, MODELS[task], **taught)
    compiled = jobs.spec(tmp_path / "compiled", examples, MODELS[task], train={"compile": True}, **taught)
    train_alone(ranks, alone)
    assert min(ranks.run(1, train_compiled, compiled)) > 0
    assert_same_training(compiled, alone)


@pytest.mark.parametrize(("task", "strategy", "processes"), tiers([("images", "fsdp", 2)], [("images", "ddp", 2)]))
def test_it_goes_on_from_its_checkpoint_bit_for_bit(
    ranks: Any, tmp_path: Path, task: str, examples: Path, taught: dict[str, Any], strategy: str, processes: int
) -> None:
    optimizer = {**jobs.TRAIN["optimizer"], "no_decay": ["*.bias", "objective.parts.*.projections.*"]}
    train = {"strategy": strategy, "checkpoint_every": 3, "optimizer": optimizer, "average": 0.9}
    assert_goes_on(
        ranks, processes, jobs.spec(tmp_path / "job", examples, MODELS[task], processes, train=train, **taught)
    )


class Plain(nn.Module):
    """Logits and nothing else, for every request."""

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, num_labels))

    def forward(self, images: Tensor, **requested: bool) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


@pytest.mark.parametrize(
    ("student", "objective", "error"),
    [
        ({"factory": f"{__name__}:Plain"}, {"type": "logits"}, None),
        ({"factory": f"{__name__}:Plain"}, OBJECTIVES[0], r"student\.model: .* returned no hidden_states"),
        (jobs.VIT, OBJECTIVES[0], None),
        (
            jobs.VIT,
            {**OBJECTIVES[0], "layers": [[2, 2], [3, 2]]},
            r"student\.distill\[0\]\.layers\[1\]: the student has 2",
        ),
    ],
)
def test_a_student_that_does_not_fit_is_refused_before_the_teacher_is_trained(
    tmp_path: Path, image_examples: Path, student: dict[str, Any], objective: dict[str, Any], error: str | None
) -> None:
    later = {
        "later_models": {"student.model": student},
        "student_teachers": ["teacher"],
        "student_objectives": [objective],
        "student_train": jobs.TRAIN,
    }
    spec = jobs.spec(tmp_path, image_examples, jobs.VIT, **later)
    job, split = training_of(spec), open_split(image_examples, "train")
    if error is None:
        try_later_models(job, split, "cpu")
    else:
        with pytest.raises(InputError, match=f"^{error}"):
            try_later_models(job, split, "cpu")
