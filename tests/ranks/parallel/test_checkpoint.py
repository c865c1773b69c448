import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from understudy.errors import Fenced
from understudy.parallel.apply import Spread
from understudy.parallel.checkpoint import Checkpoints
from understudy.recipe import Degrees, Optimizer
from understudy.train.optimizers import build_optimizer

ADAMW = {"name": "adamw", "learning_rate": 0.1, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.9}
LAYOUTS = [(1, 1), (2, 1), (1, 2), (2, 2)]


def within(replicate: int, shard: int, act: Callable[..., Any], *args: Any) -> Any:
    """What act returns, given a model on these degrees, its optimiser, and a checkpoint folder."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        torch.manual_seed(0)
        degrees = Degrees(dp_replicate=replicate, dp_shard=shard)
        net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 8), nn.Linear(8, 3))
        over = Spread(degrees, torch.device("cpu"), torch.float32)
        model = over.replicated(over.over_ranks(net))
        return act(model, build_optimizer(list(model.parameters()), Optimizer(**ADAMW)), *args)
    finally:
        dist.destroy_process_group()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    torch.manual_seed(number)
    model(torch.randn(6, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def state(model: nn.Module) -> dict[str, Any]:
    from torch.distributed.tensor import DTensor

    tensors = {name.removeprefix("module."): tensor for name, tensor in model.state_dict().items()}
    return {
        key: (value.full_tensor() if isinstance(value, DTensor) else value).tolist() for key, value in tensors.items()
    }


def save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, last: int) -> Any:
    """Steps 1 to last, a checkpoint after each; the weights two steps later."""
    checkpoints = Checkpoints(folder, model, optimizer)
    assert checkpoints.latest() is None
    for number in range(1, last + 1):
        step(model, optimizer, number)
        checkpoints.save(number, json.dumps({"history": [number]}))
        checkpoints.copied()
    checkpoints.finish()
    for number in (last + 1, last + 2):
        step(model, optimizer, number)
    return state(model)


def go_on(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> Any:
    """The weights two steps after the newest checkpoint."""
    checkpoints = Checkpoints(folder, model, optimizer)
    latest = checkpoints.latest()
    assert latest is not None
    assert json.loads(checkpoints.load(latest)) == {"history": [latest]}
    for number in (latest + 1, latest + 2):
        step(model, optimizer, number)
    return state(model)


@pytest.mark.parametrize(("replicate", "shard"), LAYOUTS)
def test_a_run_goes_on_bit_for_bit(ranks: Any, tmp_path: Path, replicate: int, shard: int) -> None:
    size = replicate * shard
    unbroken = ranks.run(size, within, replicate, shard, save, tmp_path, 3)[0]
    assert ranks.run(size, within, replicate, shard, go_on, tmp_path)[0] == unbroken
    assert len(unbroken) == 9


def test_a_run_goes_on_on_other_degrees(ranks: Any, tmp_path: Path) -> None:
    unbroken = ranks.run(2, within, 1, 2, save, tmp_path, 3)[0]
    for replicate, shard in LAYOUTS:
        resumed = ranks.run(replicate * shard, within, replicate, shard, go_on, tmp_path)[0]
        assert resumed.keys() == unbroken.keys()
        for name, values in unbroken.items():
            torch.testing.assert_close(torch.tensor(resumed[name]), torch.tensor(values))


def test_the_newest_two_are_kept_and_nothing_that_was_left_half_written(ranks: Any, tmp_path: Path) -> None:
    (tmp_path / ".writing-9-abc").mkdir()
    (tmp_path / ".writing-9-abc" / "progress.json").write_text("{")
    ranks.run(1, within, 1, 1, save, tmp_path, 12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-11", "step-12"]
    assert json.loads((tmp_path / "step-12" / "progress.json").read_text()) == {"history": [12]}


@pytest.mark.parametrize("damage", ["torn", "gone"])
@pytest.mark.parametrize(("replicate", "shard"), [(1, 1), (1, 2)])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    ranks: Any, tmp_path: Path, replicate: int, shard: int, damage: str
) -> None:
    size = replicate * shard
    unbroken = ranks.run(size, within, replicate, shard, save, tmp_path, 3)[0]
    [part] = (tmp_path / "step-3").glob(f"__{size - 1}_0.distcp")
    part.write_bytes(part.read_bytes()[:-7]) if damage == "torn" else part.unlink()
    continued = ranks.run(size, within, replicate, shard, go_on_to, tmp_path, 2, 5)[0]
    assert continued == unbroken
    assert not (tmp_path / "step-3").exists()


def go_on_to(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, expected: int, last: int) -> Any:
    """The weights at a step, from the newest checkpoint that is whole."""
    checkpoints = Checkpoints(folder, model, optimizer)
    latest = checkpoints.latest()
    assert latest == expected
    checkpoints.load(latest)
    for number in range(latest + 1, last + 1):
        step(model, optimizer, number)
    return state(model)


def save_while_another_writes(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    checkpoints = Checkpoints(folder, model, optimizer)
    (folder / ".writing-2-successor").mkdir()
    step(model, optimizer, 1)
    checkpoints.save(1, "{}")
    checkpoints.finish()


def test_what_another_attempt_began_to_write_meanwhile_stays(ranks: Any, tmp_path: Path) -> None:
    ranks.run(1, within, 1, 1, save_while_another_writes, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".writing-2-successor", "step-1"]


def after_a_takeover(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, when: str) -> str:
    checkpoints = Checkpoints(folder / "1.me", model, optimizer)
    step(model, optimizer, 1)
    if when == "during":
        checkpoints.save(1, "{}")
    (folder / "1.me").rename(folder / "2.other")
    with pytest.raises(Fenced) as caught:
        checkpoints.finish() if when == "during" else checkpoints.save(1, "{}")
    return str(caught.value)


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_run_that_was_taken_over_writes_no_checkpoint(ranks: Any, tmp_path: Path, when: str) -> None:
    (tmp_path / "1.me").mkdir()
    (message,) = ranks.run(1, within, 1, 1, after_a_takeover, tmp_path, when)
    assert message == "another run has taken this step over"
    assert [path.name for path in tmp_path.iterdir()] == ["2.other"]
    assert not list((tmp_path / "2.other").glob("step-*"))


def publish(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> list[str]:
    import time

    checkpoints = Checkpoints(folder, model, optimizer)
    step(model, optimizer, 1)
    checkpoints.save(1, "{}")
    for _ in range(2000):
        checkpoints.finish_if_written()
        if checkpoints.latest() == 1:
            break
        time.sleep(0.01)
    names = sorted(path.name for path in folder.iterdir())
    checkpoints.finish()
    checkpoints.finish()
    return names


def test_a_checkpoint_is_in_place_as_soon_as_it_is_written(ranks: Any, tmp_path: Path) -> None:
    assert ranks.run(1, within, 1, 1, publish, tmp_path) == [["step-1"]]
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
