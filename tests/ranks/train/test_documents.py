"""Documents of a sequence see nothing of one another, whatever model reads them; one that cannot is refused."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_parity import DISTILL, FOUR_HEADS, GPT, assert_same_training, curve, refusal
from tests.unit.models.sections import section
from understudy.data.loader import PackedExamples, open_split
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import read_facts
from understudy.models.initial import draw_weights
from understudy.models.tasks import TextModel

SIZES = jobs.LLAMA["config"]
MODELS = {
    "llama": jobs.LLAMA,
    "gpt2": GPT,
    "qwen2": {"type": "qwen2", "config": SIZES},
    "qwen3": {"type": "qwen3", "config": {**SIZES, "head_dim": 8}},
    "mistral": {"type": "mistral", "config": {**SIZES, "sliding_window": 4}},
    "eager": {"type": "gptj", "config": {"n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4, "n_positions": 16}},
}


OFTEN_READ = {"llama", "gpt2", "qwen2"}


def built_model(examples: Path, model: dict[str, Any]) -> TextModel:
    found = build_model(describe(section(model), read_facts(examples), "teacher.model")).eval()
    draw_weights(found.get_submodule("net"), 1)
    assert isinstance(found, TextModel)
    return found


def packed(examples: Path) -> PackedExamples:
    train_split = open_split(examples, "train")
    assert isinstance(train_split, PackedExamples)
    return train_split


@pytest.mark.parametrize(
    "name", [name if name in OFTEN_READ else pytest.param(name, marks=pytest.mark.full) for name in MODELS]
)
@torch.no_grad()
def test_a_document_is_what_it_is_alone(packed_examples: Path, name: str) -> None:
    """Up to rounding as in a sequence of its own, and to the bit as beside another document."""
    split, model = packed(packed_examples), built_model(packed_examples, MODELS[name])
    indices = np.arange(len(split))
    inputs, positions = split.batch(indices)[0], split.positions(indices)
    logits = model(inputs, positions=positions).logits
    document = (positions == 0).cumsum(1)
    assert int(document.max()) > 2
    for number in range(1, 4):
        is_own = document == number
        changed = torch.where(is_own, inputs, (inputs + 1) % 50)
        assert torch.equal(model(changed, positions=positions).logits[is_own], logits[is_own])
        for row in range(0, len(inputs), 12):
            if is_own[row].any():
                alone = model(inputs[row, is_own[row]][None]).logits[0]
                torch.testing.assert_close(logits[row, is_own[row]], alone, rtol=0, atol=1e-6)


@torch.no_grad()
def one_by_one(examples: Path, split: str, model: TextModel) -> float:
    """The mean loss of a split's tokens, of each document alone after an end-of-text token."""
    tokens, offsets = (np.load(examples / f"{split}.{name}.npy") for name in ("tokens", "offsets"))
    loss = 0.0
    for start, end in itertools.pairwise(offsets):
        stream = torch.tensor([0, *tokens[start:end].tolist()])
        for first in range(0, len(stream) - 1, 16):
            part = stream[first : first + 17]
            loss += float(functional.cross_entropy(model(part[None, :-1]).logits[0], part[1:], reduction="sum"))
    return loss / len(tokens)


def test_a_step_learns_from_each_document_alone(ranks: Any, tmp_path: Path, packed_examples: Path) -> None:
    """The first step's loss over all sequences, against documents that are read one by one. None of their tokens is
    left out, and the first is predicted from the end-of-text token.
    """
    job = jobs.spec(tmp_path, packed_examples, jobs.LLAMA, train={"steps": 1, "batch_size": 128, "schedule": NO_WARMUP})
    ranks.run(1, train_ranks, job)
    model = built_model(packed_examples, jobs.LLAMA)
    assert curve(job)[0]["loss"] == pytest.approx(one_by_one(packed_examples, "train", model), rel=1e-5)


NO_WARMUP = {"warmup": 0, "decay": "constant", "final": 1.0}
OFTEN: list[tuple[Any, int]] = [
    ("fsdp", 2),
    ("cp", 2),
    ("pp", 2),
    ({"tp": 2, "sequence_parallel": True}, 2),
]
RARER: list[tuple[Any, int]] = [
    ("ddp", 2),
    ("tp", 2),
    ({"cp": 2, "tp": 2}, 4),
    ({"cp": 2, "dp_shard": 2}, 4),
    ({"pp": 2, "cp": 2}, 4),
    ({"pp": 2, "tp": 2}, 4),
    ({"pp": 2, "dp_shard": 2}, 4),
]


@pytest.fixture(scope="module")
def taught(ranks: Any, tmp_path_factory: pytest.TempPathFactory, packed_examples: Path) -> tuple[Any, dict[str, Any]]:
    """A student that one process trains, and the arguments besides its settings."""
    folder = tmp_path_factory.mktemp("taught")
    teacher = jobs.spec(folder / "teacher", packed_examples, GPT)
    ranks.run(1, train_ranks, teacher)
    changes = {"teacher": str(teacher.output), "teacher_model": GPT, "objectives": DISTILL, "seed": 2}
    alone = jobs.spec(folder / "alone", packed_examples, FOUR_HEADS, train={"validate_every": 4}, **changes)
    train_alone(ranks, alone)
    return alone, changes


@pytest.mark.parametrize(("strategy", "processes"), tiers(OFTEN, RARER))
def test_every_strategy_keeps_documents_apart(
    ranks: Any, tmp_path: Path, packed_examples: Path, taught: tuple[Any, dict[str, Any]], strategy: Any, processes: int
) -> None:
    alone, changes = taught
    train = {"strategy": strategy, "gradient_accumulation_steps": 2, "validate_every": 4}
    spread = jobs.spec(tmp_path, packed_examples, FOUR_HEADS, processes, train=train, **changes)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)
    losses, expected = ([point["validation_loss"] for point in curve(job)[3::4]] for job in (spread, alone))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_validation_is_what_documents_lose_one_by_one(
    packed_examples: Path, taught: tuple[Any, dict[str, Any]]
) -> None:
    alone, _ = taught
    model = built_model(packed_examples, FOUR_HEADS)
    model.net.load_state_dict(load_file(alone.output / "model.safetensors"))
    expected = one_by_one(packed_examples, "validation", model)
    assert curve(alone)[-1]["validation_loss"] == pytest.approx(expected, rel=1e-5)


def test_a_teacher_sees_the_documents_that_the_student_sees(ranks: Any, tmp_path: Path, packed_examples: Path) -> None:
    """A student that starts as its teacher has nothing to learn from its logits of the same documents."""
    teacher = jobs.spec(tmp_path / "teacher", packed_examples, jobs.LLAMA)
    ranks.run(1, train_ranks, teacher)
    start: dict[str, Any] = {"teacher": str(teacher.output), "initial": str(teacher.output)}
    job = jobs.spec(tmp_path / "job", packed_examples, jobs.LLAMA, objectives=DISTILL[1:], **start)
    ranks.run(1, train_ranks, job)
    assert curve(job)[0]["loss"] == pytest.approx(0, abs=1e-6)


MIXTURE = {"type": "mixtral", "config": {**SIZES, "num_local_experts": 4}}
BLOOM = {"type": "bloom", "config": {"hidden_size": 16, "n_layer": 2, "n_head": 2}}
SILENT = {"type": "llama", "config": {**SIZES, "initializer_range": 1e-30}}
CANNOT_BE_TRIED = "the model's outputs do not depend on earlier tokens"
SEES_ALL = "the model's outputs for a document depend on the previous document of the sequence"
NO_POSITIONS = "BloomForCausalLM takes no position_ids, so it cannot be told where a document begins"


@pytest.mark.parametrize(
    ("model", "strategy", "message"),
    [
        (jobs.BERT, "single", f"teacher.model: {SEES_ALL}"),
        (BLOOM, "single", f"teacher.model: {NO_POSITIONS}"),
        (SILENT, "single", f"teacher.model: {CANNOT_BE_TRIED}"),
        pytest.param(jobs.BERT, "pp", f"teacher.model: {SEES_ALL}", marks=pytest.mark.full),
    ],
)
def test_a_model_that_sees_other_documents_is_refused(
    ranks: Any, tmp_path: Path, packed_examples: Path, model: dict[str, Any], strategy: Any, message: str
) -> None:
    processes = 1 if strategy == "single" else 2
    train = {"strategy": strategy, "gradient_accumulation_steps": 2}
    job = jobs.spec(tmp_path, packed_examples, model, processes, train=train)
    for words in ranks.run(processes, refusal, job):
        assert words.startswith(message)
        assert "leave out data.text.packing" in words


def test_a_teacher_that_sees_other_documents_is_refused(
    ranks: Any, tmp_path: Path, text_examples: Path, packed_examples: Path
) -> None:
    teacher = jobs.spec(tmp_path / "teacher", text_examples, jobs.BERT)
    ranks.run(1, train_ranks, teacher)
    changes: dict[str, Any] = {"teacher": str(teacher.output), "teacher_model": jobs.BERT, "objectives": DISTILL}
    job = jobs.spec(tmp_path / "job", packed_examples, jobs.LLAMA, **changes)
    assert ranks.run(1, refusal, job)[0].startswith(f"teacher.model: {SEES_ALL}")


def test_a_later_model_that_takes_no_positions_is_refused_before_the_first_trains(
    ranks: Any, tmp_path: Path, packed_examples: Path
) -> None:
    job = jobs.spec(tmp_path, packed_examples, jobs.LLAMA, later_models={"student.model": BLOOM})
    assert ranks.run(1, refusal, job)[0].startswith(f"student.model: {NO_POSITIONS}")


@pytest.mark.full
def test_experts_that_share_out_other_tokens_are_no_leak(ranks: Any, tmp_path: Path, packed_examples: Path) -> None:
    """Their products have other shapes then, and round otherwise."""
    job = jobs.spec(tmp_path, packed_examples, MIXTURE)
    ranks.run(1, train_ranks, job)
    assert json.loads((job.output / "history.json").read_text())
