from typing import Any

import pytest
import torch
from torch import Tensor

from understudy.parallel.ring import ring_attention, ring_positions

WIDTH, LENGTH = 8, 24


def tensors() -> tuple[Tensor, ...]:
    """Query, key, value and the output's gradient of two examples; four heads share two of the keys."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, heads, LENGTH, WIDTH, generator=generator) for heads in (4, 2, 2, 4))


def full_attention() -> tuple[Tensor, ...]:
    """Written out: attention of every position to those before it, and its gradients."""
    *inputs, back = tensors()
    query, key, value = (tensor.requires_grad_() for tensor in inputs)
    products = query @ key.repeat_interleave(2, 1).mT / WIDTH**0.5
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    output = products.masked_fill(later, -torch.inf).softmax(-1) @ value.repeat_interleave(2, 1)
    output.backward(back)
    return output.detach(), *(tensor.grad for tensor in (query, key, value))  # type: ignore[arg-type]


def in_a_ring() -> list[float]:
    """How far a rank's part is off: of the answer, and of the gradients of query, key and value."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        positions = ring_positions(LENGTH, dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
        *inputs, back = (tensor[:, :, positions] for tensor in tensors())
        query, key, value = (tensor.clone().requires_grad_() for tensor in inputs)
        assert dist.group.WORLD is not None
        output = ring_attention(query, key, value, dist.group.WORLD, None)
        output.backward(back)
        results = (output.detach(), query.grad, key.grad, value.grad)
        return [
            float((ours - theirs[:, :, positions]).abs().max())
            for ours, theirs in zip(results, full_attention(), strict=True)
        ]  # type: ignore[operator]
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("ranks_in_it", [2, pytest.param(4, marks=pytest.mark.full)])
def test_every_position_sees_those_before_it_on_all_ranks(ranks: Any, ranks_in_it: int) -> None:
    for off in ranks.run(ranks_in_it, in_a_ring):
        assert max(off) < 2e-6


@pytest.mark.parametrize("ranks_in_it", [1, 2, 4])
def test_ranks_see_as_many_positions_as_one_another(ranks_in_it: int) -> None:
    parts = [ring_positions(LENGTH, rank, ranks_in_it, torch.device("cpu")) for rank in range(ranks_in_it)]
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(LENGTH))
    assert all(torch.equal(part, part.sort().values) for part in parts)
    assert len({int(part.sum()) for part in parts}) == 1
