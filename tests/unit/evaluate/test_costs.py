from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from understudy.data.measured import Labelled
from understudy.evaluate.costs import Costs, hardware, inference_costs
from understudy.evaluate.latency import WARM_UP
from understudy.evaluate.shares import WHOLE, Share
from understudy.recipe import Recipe

CPU = torch.device("cpu")
REPEATS = 4


@pytest.fixture
def recipe() -> Recipe:
    learner = {"model": {"factory": "torch.nn:Identity"}, "train": {"steps": 1}}
    return Recipe.model_validate(
        {
            "name": "costs",
            "task": "image-classification",
            "data": {"source": {"type": "digits"}},
            "teacher": learner,
            "student": learner,
            "evaluate": {"latency": {"batch_size": 5, "repeats": REPEATS}},
        }
    )


@pytest.fixture
def split(tmp_path: Path) -> Labelled:
    np.save(tmp_path / "test.images.npy", np.zeros((2, 8), dtype=np.float32))
    np.save(tmp_path / "test.labels.npy", np.zeros(2, dtype=np.int64))
    return Labelled(tmp_path, "images")


def measured(recipe: Recipe, split: Labelled, share: Share) -> tuple[dict[str, Costs], int]:
    """The costs of two linear layers, and the number of ticks."""
    modules = {"teacher": nn.Linear(8, 3), "student": nn.Linear(8, 1)}
    ticks: list[int] = []
    costs = inference_costs(modules, dict.fromkeys(modules, split), recipe, CPU, lambda: ticks.append(1), share)
    return costs, len(ticks)


def test_costs_are_parameters_flop_of_one_example_and_the_times_of_all_rounds(recipe: Recipe, split: Labelled) -> None:
    costs, ticks = measured(recipe, split, WHOLE)
    assert {role: (cost.parameters, cost.flops) for role, cost in costs.items()} == {
        "teacher": (9 * 3, 2 * 8 * 3),
        "student": (9, 2 * 8),
    }
    assert {role: cost.rounds.shape for role, cost in costs.items()} == {"teacher": (REPEATS,), "student": (REPEATS,)}
    assert ticks == WARM_UP + REPEATS


def test_a_rank_that_waits_meets_the_first_one_after_every_round(
    recipe: Recipe, split: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    meetings: list[Share] = []

    def meet(share: Share) -> None:
        meetings.append(share)

    monkeypatch.setattr(Share, "meet", meet)
    costs, ticks = measured(recipe, split, Share(rank=1, world_size=2))
    assert costs == {}
    assert len(meetings) == ticks == WARM_UP + REPEATS


def test_the_hardware_of_one_process_has_the_torch_and_precision_of_the_measurement() -> None:
    machine = hardware(CPU, "bf16")
    assert (machine["device"], machine["processes"], machine["precision"]) == ("cpu", 1, "bf16")
    assert (machine["torch"], machine["threads"]) == (torch.__version__, torch.get_num_threads())
