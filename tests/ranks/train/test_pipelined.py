"""A model in stages has the losses of a whole one, under every schedule and with a teacher."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import ViTConfig, ViTForImageClassification

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_parity import DISTILL, GPT, assert_same_training, curve, refusal, train_in_pieces
from understudy.errors import InputError
from understudy.parallel import pipeline as schedules
from understudy.parallel.layout import Layout, OutputSpec
from understudy.parallel.stages import MicroBatch, Passing, Stage
from understudy.recipe import Pipeline
from understudy.train.staged import warn_if_uneven

FIVE_LAYERS = {
    "llama": {**jobs.LLAMA, "config": {**jobs.LLAMA["config"], "num_hidden_layers": 5}},
    "gpt2": {**GPT, "config": {**GPT["config"], "n_layer": 5}},
    "bert": {**jobs.BERT, "config": {**jobs.BERT["config"], "num_hidden_layers": 5}},
    "vit": {**jobs.VIT, "config": {**jobs.VIT["config"], "num_hidden_layers": 5}},
    "factory": {"factory": f"{__name__}:vit_with_memory", "kwargs": {}},
}
SCHEDULES = ["GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]
STAGES: list[tuple[str, Any, int, str]] = [
    *(("llama", "pp", 2, schedule) for schedule in SCHEDULES),
    *((model, "pp", 2, "1F1B") for model in ("gpt2", "vit", "factory")),
    ("llama", {"pp": 2, "dp_shard": 2}, 4, "1F1B"),
]
RARER: list[tuple[str, Any, int, str]] = [
    ("bert", "pp", 2, "1F1B"),
    *((model, {"pp": 2, "dp_shard": 2}, 4, "1F1B") for model in ("gpt2", "vit", "bert")),
    ("llama", {"pp": 2, "tp": 2}, 4, "1F1B"),
    ("gpt2", "pp", 2, "ZBVZeroBubble"),
    ("llama", {"pp": 2, "dp_shard": 2}, 4, "ZBVZeroBubble"),
    ("llama", {"pp": 2, "dp_replicate": 2}, 4, "Interleaved1F1B"),
    ("llama", {"pp": 2, "dp_shard": 2}, 4, "InterleavedZeroBubble"),
    ("llama", {"pp": 2, "cp": 2}, 4, "1F1B"),
    ("llama", "pp", 4, "1F1B"),
]


@pytest.fixture
def examples(model: str, image_examples: Path, text_examples: Path) -> Path:
    """The task of a model."""
    return image_examples if model in ("vit", "factory") else text_examples


def vit_with_memory(num_labels: int, image_size: int, num_channels: int) -> nn.Module:
    """One of code of one's own, which is built with its weights and asks for their types."""
    sizes = {"num_labels": num_labels, "image_size": image_size, "num_channels": num_channels}
    return ViTForImageClassification(ViTConfig(**FIVE_LAYERS["vit"]["config"], **sizes))


@pytest.mark.parametrize(("model", "strategy", "processes", "schedule"), tiers(STAGES, RARER))
def test_stages_train_as_a_whole_model(
    ranks: Any, tmp_path: Path, examples: Path, model: str, strategy: Any, processes: int, schedule: str
) -> None:
    """Validated meanwhile, too. The last batch of an epoch is ragged."""
    config = FIVE_LAYERS[model]
    train = {"strategy": strategy, "gradient_accumulation_steps": 4, "validate_every": 4}
    alone = jobs.spec(tmp_path / "alone", examples, config, train={"validate_every": 4})
    spread = jobs.spec(
        tmp_path / "spread", examples, config, processes, train={**train, "pipeline": {"schedule": schedule}}
    )
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)
    losses, expected = ([point["validation_loss"] for point in curve(job)[3::4]] for job in (spread, alone))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


TAUGHT: list[tuple[str, Any, int, str]] = [
    ("llama", "pp", 2, "1F1B"),
    ("llama", {"pp": 2, "dp_shard": 2}, 4, "Interleaved1F1B"),
]
RARELY_TAUGHT: list[tuple[str, Any, int, str]] = [
    ("gpt2", {"pp": 2, "tp": 1, "cp": 2}, 4, "1F1B"),
    ("llama", "pp", 2, "DualPipeV"),
    ("vit", {"pp": 2, "dp_replicate": 2}, 4, "1F1B"),
]


@pytest.mark.parametrize(("model", "strategy", "processes", "schedule"), tiers(TAUGHT, RARELY_TAUGHT))
def test_stages_learn_the_same_of_a_teacher_that_has_none(
    ranks: Any, tmp_path: Path, examples: Path, model: str, strategy: Any, processes: int, schedule: str
) -> None:
    config = FIVE_LAYERS[model]
    if model == "llama":
        config = {**config, "config": {**config["config"], "num_key_value_heads": 4}}
    teacher_model = jobs.VIT if model == "vit" else GPT
    teacher = jobs.spec(tmp_path / "teacher", examples, teacher_model)
    ranks.run(1, train_ranks, teacher)
    changes: dict[str, Any] = {"teacher": str(teacher.output), "teacher_model": teacher_model}
    changes |= {"objectives": DISTILL, "seed": 2}
    alone = jobs.spec(tmp_path / "alone", examples, config, **changes)
    train = {"strategy": strategy, "gradient_accumulation_steps": 4, "pipeline": {"schedule": schedule}}
    spread = jobs.spec(tmp_path / "spread", examples, config, processes, train=train, **changes)
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks if model == "vit" else train_in_pieces, spread)
    assert_same_training(spread, alone)


@pytest.mark.parametrize("model", ["gpt2"])
def test_a_tied_weight_at_both_ends_of_a_v_is_refused_with_shards(ranks: Any, tmp_path: Path, examples: Path) -> None:
    train = {"strategy": {"pp": 2, "dp_shard": 2}, "gradient_accumulation_steps": 4}
    train["pipeline"] = {"schedule": "ZBVZeroBubble"}
    for error in ranks.run(4, refusal, jobs.spec(tmp_path, examples, FIVE_LAYERS["gpt2"], 4, train=train)):
        assert error.startswith(
            "teacher.train.pipeline.schedule: ZBVZeroBubble has the first and the last stage in one"
        )


@pytest.mark.parametrize("model", ["llama"])
def test_a_number_of_micro_batches_that_a_schedule_cannot_have_is_refused(
    ranks: Any, tmp_path: Path, examples: Path
) -> None:
    train = {"strategy": "pp", "gradient_accumulation_steps": 1}
    for error in ranks.run(2, refusal, jobs.spec(tmp_path, examples, FIVE_LAYERS["llama"], 2, train=train)):
        assert error.startswith("teacher.train.gradient_accumulation_steps: 1F1B over 2 processes cannot have 1 micro")


@pytest.mark.parametrize("schedule", ["1F1B", "LoopedBFS"])
def test_what_a_stage_raises_comes_out_of_the_schedule_as_it_is(schedule: Any) -> None:
    """torch puts an error around it without its class and words: a refusal would be a crash, and a lost peer none."""

    def refuse() -> AbstractContextManager[None]:
        raise InputError("student.train: this cannot be")

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        settings, hidden = Pipeline(schedule=schedule), OutputSpec((1, 4), torch.float32)
        ranks = schedules.homes(settings, 2)
        stages = {
            number: Stage(nn.Identity(), Passing(), (), torch.float32, is_last=False)
            for number, rank in enumerate(ranks)
            if rank == 0
        }
        mesh, device = init_device_mesh("cpu", (2,)), torch.device("cpu")
        pipeline = schedules.Pipeline(stages, ranks, mesh, settings, 2, hidden, device, "student.train")
        micro_batch = MicroBatch(torch.zeros(1, 4), {}, lambda outputs: outputs, refuse)
        with pytest.raises(InputError, match=r"^student\.train: this cannot be$"):
            pipeline.gradients([micro_batch, micro_batch])
    finally:
        dist.destroy_process_group()


def test_stages_of_unequal_cost_are_said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    stage_layout = Layout(("a", "b", "c"), {}, {}, OutputSpec((2, 4), torch.float32), (10, 10, 10), 0, 0)
    warn_if_uneven(stage_layout, [range(2), range(2, 3)])
    assert "the stages have 2, 1 blocks, and the slowest takes 1.33 times as long as the mean" in caplog.text
    caplog.clear()
    warn_if_uneven(stage_layout, [range(1), range(1, 2), range(2, 3)])
    assert not caplog.text
