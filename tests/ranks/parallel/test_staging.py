import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.distributed.checkpoint._state_dict_stager import StateDictStager
from torch.distributed.checkpoint.staging import DefaultStager

from tests.ranks.parallel.test_checkpoint import state, step, within
from tests.ranks.train import jobs
from understudy.parallel.checkpoint import Checkpoints
from understudy.parallel.powersgd import PowerSGD
from understudy.parallel.staging import Stager


def slowly(stage: Callable[..., Any]) -> Callable[..., Any]:
    """A copy that begins late."""

    def staged(stager: DefaultStager, state_dict: Any) -> Any:
        time.sleep(0.3)
        return stage(stager, state_dict)

    return staged


def checkpoint_of_late_rank() -> Any:
    return patch.object(DefaultStager, "stage", slowly(DefaultStager.stage))


def saved_before_changes(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> tuple[Any, Any]:
    """The saved state, and the loaded one after the model has changed."""
    step(model, optimizer, 1)
    checkpoints = Checkpoints(folder, model, optimizer)
    before = state(model)
    with checkpoint_of_late_rank():
        checkpoints.save(1, "{}")
        model(torch.randn(6, 4) + 5)  # running means
        checkpoints.copied()
    step(model, optimizer, 2)
    checkpoints.finish()
    checkpoints.load(1)
    return before, state(model)


def test_what_changes_as_training_goes_on_is_not_in_the_checkpoint(ranks: Any, tmp_path: Path) -> None:
    for before, loaded in ranks.run(2, within, 2, 1, saved_before_changes, tmp_path):
        assert loaded == before


def test_what_a_backward_pass_changes_is_copied_at_once() -> None:
    compression = PowerSGD.__new__(PowerSGD)
    compression.load_state_dict({"remainder": torch.zeros(2)})
    copied = compression.state_dict()
    compression._state["remainder"].add_(1)
    assert copied["remainder"].tolist() == [0, 0]


def train_with_late_copies(job: Any) -> None:
    from tests.ranks.train.jobs import train_ranks

    with checkpoint_of_late_rank():
        train_ranks(job)


def weights_of_a_checkpoint(folder: Path) -> dict[str, list[float]]:
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    stored = FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {name: torch.empty(entry.size) for name, entry in stored.items() if name.startswith("model.")}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        load(tensors, checkpoint_id=folder, no_dist=True)
    return {name.removeprefix("model."): tensor.tolist() for name, tensor in tensors.items()}


def test_the_optimiser_waits_until_the_weights_are_copied(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    """The checkpoint of step 2 has the weights that a training of two steps ends with."""
    flat = {"schedule": {"warmup": 0, "decay": "constant", "final": 1.0}}
    long = jobs.spec(tmp_path / "long", image_examples, jobs.VIT, train={**flat, "steps": 4, "checkpoint_every": 2})
    short = jobs.spec(tmp_path / "short", image_examples, jobs.VIT, train={**flat, "steps": 2})
    ranks.run(1, train_with_late_copies, long)
    ranks.run(1, train_with_late_copies, short)
    assert weights_of_a_checkpoint(*long.output.parent.rglob("step-2")) == weights_of_a_checkpoint(
        *short.output.parent.rglob("step-2")
    )


class OnGpu:
    """What torch.cuda has of streams, and in which order a copy uses it; there is no GPU here."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.device = torch.device("cuda", 0)

    def record_event(self) -> str:
        self.calls.append("training records an event")
        return "event"

    def wait_event(self, event: str) -> None:
        self.calls.append(f"the copy waits for the {event}")

    def synchronize(self) -> None:
        self.calls.append("the copy is waited for")


def test_from_a_gpu_a_state_is_copied_on_another_stream_into_memory_that_is_used_again() -> None:
    """Twice, with changes between; the streams are stand-ins, and the copies torch's own."""
    streams, state = OnGpu(), {"weight": torch.zeros(4), "step": 1}
    with (
        patch.object(torch.cuda, "Stream", lambda device: streams),
        patch.object(torch.cuda, "current_stream", lambda device: streams),
        patch.object(torch.cuda, "stream", lambda stream: nullcontext(streams.calls.append("copies begin"))),
        patch("understudy.parallel.staging.StateDictStager", lambda pin_memory: StateDictStager()),
    ):
        stager = Stager(streams.device)
        first = stager.stage(state).result()
        address = first["weight"].data_ptr()
        assert first["weight"].tolist() == [0, 0, 0, 0]
        state["weight"].add_(1)
        second = stager.stage(state).result()
    assert second["weight"].tolist() == [1, 1, 1, 1]
    assert second["weight"].data_ptr() == address != state["weight"].data_ptr()
    once = ["training records an event", "copies begin", "the copy waits for the event", "the copy is waited for"]
    assert streams.calls == 2 * once
