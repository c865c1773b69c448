"""Weight decay by names: as two groups of torch's AdamW, under every strategy, tied weights and other degrees too."""

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_alone, train_ranks
from tests.ranks.train.test_parity import assert_same_training, curve, refusal
from tests.unit.models.small import network
from understudy.recipe import Optimizer

DECAYS = {**jobs.TRAIN["optimizer"], "learning_rate": 0.01, "weight_decay": 5.0}
NAMED = {"optimizer": {**DECAYS, "no_decay": ["*norm*", "*.layers.0.mlp.*", "lm_head.*"]}}
TIED = {**jobs.LLAMA, "config": {**jobs.LLAMA["config"], "tie_word_embeddings": True}}
WAYS: list[Any] = [({"pp": 2, "dp_shard": 2}, 4), pytest.param("fsdp", 2, marks=pytest.mark.full)]
WAYS += [
    pytest.param(*case, marks=pytest.mark.full) for case in ((("ddp", 2), ("pp", 2), ({"dp_shard": 2, "tp": 2}, 4)))
]


def trained_by_hand() -> None:
    from understudy.train.decay import exempt
    from understudy.train.optimizers import build_optimizer

    torch.distributed.init_process_group("gloo")
    ours, objective = network("gpt2"), nn.Linear(2, 2)
    theirs = copy.deepcopy(ours)
    patterns = ["*.bias", "*ln_f.weight", "lm_head.weight", "objective.weight"]
    without_decay = exempt(ours, objective, patterns, "here")
    torch.distributed.destroy_process_group()
    assert id(objective.weight) in without_decay
    assert id(objective.bias) in without_decay
    optimizer = build_optimizer(list(ours.parameters()), Optimizer(weight_decay=0.5, learning_rate=0.01), without_decay)
    # The table of tokens is the head's weight too; the blocks' norms decay.
    reference_without_decay = [
        p for n, p in theirs.named_parameters() if n.endswith((".bias", "ln_f.weight", "wte.weight"))
    ]
    reference_decayed = [
        p for n, p in theirs.named_parameters() if not n.endswith((".bias", "ln_f.weight", "wte.weight"))
    ]
    groups = [
        {"params": reference_decayed, "weight_decay": 0.5},
        {"params": reference_without_decay, "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, lr=0.01)
    random = torch.Generator().manual_seed(1)
    for _ in range(5):
        for own, reference_weight in zip(ours.parameters(), theirs.parameters(), strict=True):
            own.grad = torch.randn(own.shape, generator=random)
            reference_weight.grad = own.grad.clone()
        optimizer.step()
        reference.step()
    for (name, own), reference_weight in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, reference_weight, rtol=1e-6, atol=1e-7, msg=name)


def test_it_is_adamw_with_two_groups(ranks: Any) -> None:
    ranks.run(1, trained_by_hand)


@pytest.mark.parametrize(("strategy", "processes"), WAYS)
def test_the_same_parameters_decay_under_every_strategy(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int
) -> None:
    """One pattern matches only in the first stage, another the second name of a weight that two stages share."""
    train = {**NAMED, "gradient_accumulation_steps": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, TIED, train=train)
    other = jobs.spec(tmp_path / "other", text_examples, TIED, train={**train, "optimizer": DECAYS})
    spread = jobs.spec(tmp_path / "spread", text_examples, TIED, processes, train={**train, "strategy": strategy})
    for job, count in ((alone, 1), (other, 1), (spread, processes)):
        ranks.run(count, train_ranks, job)
    assert_same_training(spread, alone)
    assert abs(curve(alone)[-1]["loss"] - curve(other)[-1]["loss"]) > 1e-3


def test_a_training_goes_on_under_other_degrees(ranks: Any, tmp_path: Path, text_examples: Path) -> None:
    train = {**NAMED, "gradient_accumulation_steps": 2, "checkpoint_every": 3}
    alone = jobs.spec(tmp_path / "alone", text_examples, TIED, train=train)
    train_alone(ranks, alone)
    job = jobs.spec(tmp_path / "job", text_examples, TIED, 2, train={**train, "strategy": "fsdp"})
    ranks.run(2, train_ranks, job)
    shutil.rmtree(job.output)
    shutil.rmtree(tmp_path / "job" / "checkpoints" / "step-9")
    further = jobs.spec(tmp_path / "job", text_examples, TIED, 2, train={**train, "strategy": "pp"})
    ranks.run(2, train_ranks, further)
    assert_same_training(further, alone)


def test_a_pattern_that_names_nothing_is_refused(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    train = {"optimizer": {**DECAYS, "no_decay": ["*.bias", "*.bais"]}, "strategy": "ddp"}
    job = jobs.spec(tmp_path, image_examples, jobs.VIT, 2, train=train)
    for said in ranks.run(2, refusal, job):
        assert said.startswith("teacher.train.optimizer.no_decay: *.bais names no parameter; there are vit.")
        assert "vit.layers.*.mlp.fc1.weight, " in said
        assert "layers.1" not in said
