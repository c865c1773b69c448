"""A training step on a GPU that does not exist: torch's FakeTensors refuse operands on different devices.

torch's backward pass asks for the driver. But of a loss in pieces the last layer's gradients are found going forward.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import FSDPModule
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.unit.plan.test_depth import llama, planned
from understudy.models import outputs
from understudy.models.build import uninitialized_model
from understudy.models.facts import Description
from understudy.models.tasks import TextModel
from understudy.objectives import fused
from understudy.objectives.batch import Batch
from understudy.objectives.objective import Context, objective
from understudy.objectives.pieces import loss_in_pieces
from understudy.parallel.apply import Spread
from understudy.recipe import Degrees
from understudy.teachers.in_memory import ModelTeacher
from understudy.train.precision import autocast

GPU = torch.device("cuda", 0)


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spread]:
    # Where there is no GPU autocast turns itself off.
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    yield Spread(Degrees(), GPU, torch.bfloat16)
    dist.destroy_process_group()


def on_gpu(described: Description) -> TextModel:
    with GPU:
        model = uninitialized_model(described, "student.model")
    assert isinstance(model, TextModel)
    model.separate_head()
    return model


@pytest.mark.parametrize("in_pieces", [True, False])
@pytest.mark.parametrize("taught", [True, False])
def test_all_operands_of_a_step_are_on_the_gpu(
    monkeypatch: pytest.MonkeyPatch, spread: Spread, taught: bool, in_pieces: bool
) -> None:
    monkeypatch.setattr(fused, "has_compiler", lambda: False)
    if in_pieces:
        monkeypatch.setattr(outputs, "LOGITS_AT_A_TIME", 300 * 12)
    job = planned(llama(2), llama(3) if taught else None)
    with FakeTensorMode(allow_non_fake_inputs=True):
        student = on_gpu(job.model)
        teachers = [ModelTeacher(on_gpu(description), frozenset()) for description in job.teachers.values()]
        student_objective = objective(job.settings.objectives, Context(job.train, seed=0))
        inputs, labels = (tensor.to(GPU) for tensor in job.examples.batch(np.zeros(2, dtype=np.int64)))
        with autocast(spread.precision, GPU):
            batch = Batch(inputs, labels)
            teacher_states = [teacher.states(batch) for teacher in teachers]
            loss = student(
                inputs, reduce=lambda states: loss_in_pieces(student_objective, states, teacher_states, batch)
            )
    saved = [tensor for tensor in loss.grad_fn.saved_tensors if isinstance(tensor, Tensor)]
    assert len(saved) == 2
    assert {tensor.device for tensor in (loss, *saved)} == {GPU}
    assert {tensor.dtype for tensor in (loss, saved[1])} == {torch.float32}


def test_what_is_offloaded_from_one_process_is_brought_to_its_gpu() -> None:
    """fully_shard does that. Without it weights stayed on the CPU, and met inputs on the GPU."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        spread = Spread(Degrees(), torch.device("cpu"), torch.float32, offloaded=True)
        assert isinstance(spread.over_ranks(torch.nn.Linear(2, 2)), FSDPModule)
        assert spread.home == torch.device("cpu")
    finally:
        dist.destroy_process_group()
