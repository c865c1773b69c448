"""Offload and compiled blocks change no loss, under several strategies."""

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_alone, train_ranks
from tests.ranks.train.test_parity import DISTILL, assert_same_training
from tests.ranks.train.test_resume import assert_goes_on
from understudy.jobs.specification import JobSpec

BOTH = ["parameters", "activations"]
RARELY = pytest.mark.full


@pytest.mark.parametrize(
    ("strategy", "processes", "offload"),
    [
        ("fsdp", 2, BOTH),
        ("single", 1, ["parameters"]),
        pytest.param("zero1", 2, ["parameters"], marks=RARELY),
        pytest.param("hsdp", 4, BOTH, marks=RARELY),
        pytest.param("ddp", 2, ["activations"], marks=RARELY),
        pytest.param("pp", 2, ["activations"], marks=RARELY),
        pytest.param({"dp_shard": 2, "tp": 2}, 4, ["parameters"], marks=RARELY),
    ],
)
def test_what_waits_elsewhere_trains_the_same(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int, offload: list[str]
) -> None:
    """With a teacher, whose shards wait there, too."""
    teacher = jobs.spec(tmp_path / "teacher", text_examples, jobs.LLAMA)
    ranks.run(1, train_ranks, teacher)
    changes: dict[str, Any] = {"teacher": str(teacher.output), "objectives": DISTILL, "seed": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA, **changes)
    train = {"strategy": strategy, "gradient_accumulation_steps": 2, "offload": offload}
    spread = jobs.spec(tmp_path / "spread", text_examples, jobs.LLAMA, processes, train=train, **changes)
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)


@pytest.mark.full
def test_a_job_whose_parameters_wait_elsewhere_goes_on_bit_for_bit(
    ranks: Any, tmp_path: Path, image_examples: Path
) -> None:
    train = {"strategy": "fsdp", "offload": BOTH, "checkpoint_every": 3}
    assert_goes_on(ranks, 2, jobs.spec(tmp_path, image_examples, jobs.VIT, 2, train=train))


@pytest.mark.parametrize(
    ("strategy", "processes", "recompute"),
    [
        ("fsdp", 2, "none"),
        ("ddp", 2, "none"),
        ("ddp", 2, "full"),
        ("fsdp", 2, "selective"),
    ],
)
@pytest.mark.full
def test_compiled_blocks_train_the_same(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: str, processes: int, recompute: str
) -> None:
    """Traced and differentiated as torch.compile does, and run without its code generator, which needs a compiler."""
    train = {"strategy": strategy, "compile": True, "activation_checkpointing": recompute}
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA)
    spread = jobs.spec(tmp_path / "spread", text_examples, jobs.LLAMA, processes, train=train)
    train_alone(ranks, alone)
    graphs = ranks.run(processes, train_compiled, spread)
    assert min(graphs) > 0
    assert_same_training(spread, alone)


def train_compiled(job: JobSpec) -> int:
    """Train with compiled blocks; how many graphs there were."""
    import torch
    from torch._dynamo.utils import counters

    from understudy.parallel import compilation

    torch._dynamo.reset()
    counters.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "BACKEND", "aot_eager")
        train_ranks(job)
    return int(counters["stats"]["unique_graphs"])
