from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from understudy.parallel.apply import Spread, gradient_sync, unwrapped
from understudy.recipe import Compression, Degrees


class Net(nn.Module):
    """Two blocks of the same kind, a short list of small ones, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ModuleList(nn.Linear(1, 1) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = layer(inputs).relu()
        return self.head(inputs) * sum(scale(inputs[:, :1]) for scale in self.scales)


def spread(net: nn.Module, degrees: Degrees) -> nn.Module:
    """The net on all ranks."""
    over = Spread(degrees, torch.device("cpu"), torch.float32)
    return over.replicated(over.over_ranks(net))


def test_a_model_on_one_process_is_left_as_it_is(ranks: Any) -> None:
    assert ranks.run(1, alone) == [(True, True)]


def alone() -> tuple[bool, bool]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        net = Net()
        same = spread(net, Degrees())
        return same is net, isinstance(gradient_sync(same, Degrees(), last=False), nullcontext)
    finally:
        dist.destroy_process_group()


def test_what_nothing_brings_to_the_device_does_not_wait_elsewhere(ranks: Any) -> None:
    assert ranks.run(2, homes) == [("cpu", "meta")] * 2


def homes() -> tuple[str, str]:
    """Where a teacher lies that is whole, and one in shards, beside a student whose shards wait elsewhere."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        degrees = Degrees(dp_shard=2)
        student = Spread(degrees, torch.device("cpu"), torch.float32, offloaded=True)
        student.home = torch.device("meta")  # on a CPU elsewhere is the same place
        replicated, shared = (student.for_inference(degrees.of_teacher(shards)) for shards in (1, 2))
        dist.barrier()  # the first rank has the store by which the other one makes its groups
        return replicated.home.type, shared.home.type
    finally:
        dist.destroy_process_group()


def gradients(replicate: int, shard: int) -> tuple[list[Any], bool]:
    """Gradients of two parts of a batch, of which only the second one's backward pass is synchronised."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    dist.init_process_group("gloo")
    try:
        torch.manual_seed(0)
        net, degrees = Net(), Degrees(dp_replicate=replicate, dp_shard=shard)
        inputs = torch.randn(8, 4)
        model = spread(net, degrees)
        mine = inputs.chunk(dist.get_world_size())[dist.get_rank()].chunk(2)
        for part, rows in enumerate(mine):
            with gradient_sync(model, degrees, last=part == 1):
                model(rows).sum().backward()
        full_gradients = [parameter.grad for parameter in unwrapped(model).parameters() if parameter.grad is not None]
        full = [grad.full_tensor() if isinstance(grad, DTensor) else grad for grad in full_gradients]
        return [grad.tolist() for grad in full], isinstance(next(unwrapped(model).parameters()), DTensor)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("replicate", "shard", "size"), [(2, 1, 2), (1, 2, 2), (2, 2, 4)])
def test_gradients_of_all_parts_are_averaged_over_processes(ranks: Any, replicate: int, shard: int, size: int) -> None:
    torch.manual_seed(0)
    net = Net()
    inputs = torch.randn(8, 4)
    (net(inputs).sum() / size).backward()
    expected = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    for grads, sharded in ranks.run(size, gradients, replicate, shard):
        assert sharded is (shard > 1)
        torch.testing.assert_close([torch.tensor(grad) for grad in grads], expected)


def parts_of_a_batch() -> list[Any]:
    """A weight's gradient after each of two parts."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        torch.manual_seed(0)
        degrees, calls = Degrees(dp_replicate=2), []
        model = spread(Net(), degrees)
        torch.manual_seed(dist.get_rank())
        for part in range(2):
            with gradient_sync(model, degrees, last=part == 1):
                model(torch.randn(3, 4)).sum().backward()
            grad = unwrapped(model).head.weight.grad
            assert grad is not None
            calls.append(grad.tolist())
        return calls
    finally:
        dist.destroy_process_group()


def test_processes_speak_to_each_other_only_after_the_last_part(ranks: Any) -> None:
    (first, last), (others_first, others_last) = ranks.run(2, parts_of_a_batch)
    assert first != others_first
    torch.testing.assert_close(torch.tensor(last), torch.tensor(others_last))


ROUNDED = {"fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("kind", list(ROUNDED))
def test_each_replica_rounds_its_own_gradients(ranks: Any, kind: str) -> None:
    by_rank = [torch.linspace(-1, 1 + rank, 12).reshape(3, 4) for rank in range(2)]
    first, second = (gradient.to(ROUNDED[kind]) / 2 for gradient in by_rank)
    for mean in ranks.run(2, averaged, kind):
        assert torch.equal(torch.tensor(mean), (first + second).float())
        assert not torch.equal(torch.tensor(mean), (by_rank[0] + by_rank[1]) / 2)


def averaged(kind: Any) -> Any:
    """The gradient of a matrix whose gradient is, on each rank, a ramp of its own."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        over = Spread(Degrees(dp_replicate=2), torch.device("cpu"), torch.float32, compression=Compression(type=kind))
        layer = nn.Linear(4, 3, bias=False)
        inputs = torch.linspace(-1, 1 + dist.get_rank(), 12).reshape(3, 4)
        model = over.replicated(layer)
        model(inputs).diagonal().sum().backward()
        assert layer.weight.grad is not None
        return layer.weight.grad.tolist()
    finally:
        dist.destroy_process_group()
