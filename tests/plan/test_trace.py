"""What the plan says that ranks hold, beside what they hold."""

from pathlib import Path
from typing import Any

import pytest

from tests.plan.measured import case, llama, measured, planned_peak, text_examples
from tests.train.jobs import spec, train_ranks

LENGTH = 128
WAYS: list[tuple[Any, int, dict[str, Any], bool]] = [
    ("single", 1, {"gradient_accumulation_steps": 2}, True),
    ("ddp", 2, {}, False),
    ("fsdp", 2, {"gradient_accumulation_steps": 2}, True),
    ("fsdp", 2, {"activation_checkpointing": "full"}, False),
    ("tp", 2, {}, True),
    ("pp", 2, {"gradient_accumulation_steps": 4}, True),
]


@pytest.mark.parametrize(("strategy", "processes", "train", "taught"), WAYS)
def test_a_plan_is_what_ranks_hold(
    ranks: Any, tmp_path: Path, strategy: Any, processes: int, train: dict[str, Any], taught: bool
) -> None:
    """The worst of the ranks counts; docs/benchmarks.md has more cases, of a larger model, with smaller errors."""
    examples, facts = text_examples(tmp_path / "examples", 2048, LENGTH)
    teacher = None
    if taught:
        teacher = spec(tmp_path / "teacher", examples, llama(192, 3, LENGTH), train={"steps": 1})
        ranks.run(1, train_ranks, teacher)
    job = case(tmp_path / "job", examples, llama(128, 4, LENGTH), teacher, (strategy, processes), **train)
    held = ranks.run(processes, measured, job)
    assert planned_peak(job, facts) == pytest.approx(max(held), rel=0.08)
