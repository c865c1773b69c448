"""Ring attention: keys and values pass from rank to rank, and each rank adds their part of its queries' attention.

Liu et al. 2023; parts are combined by log-sum-exp (Milakov & Gimelshein 2018). A rank has two chunks of each sequence,
one as far from its beginning as the other is from its end (as in Megatron and torchtitan). All ranks then attend to
equally many positions, where a rank with only the first ones would wait for the others.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from understudy.parallel.kernels import attended, gradients


def ring_positions(length: int, rank: int, ranks: int, device: torch.device) -> Tensor:
    """The positions of a rank's two chunks, int64 (length / ranks,), in order."""
    width = length // (2 * ranks)
    early, late = (width * chunk for chunk in (rank, 2 * ranks - 1 - rank))
    return torch.cat([torch.arange(first, first + width, device=device) for first in (early, late)])


def ring_attention(query: Tensor, key: Tensor, value: Tensor, group: dist.ProcessGroup, scale: float | None) -> Tensor:
    """Causal attention over the positions of all ranks, without dropout.

    Args:
        query: (B, heads, positions, width), at this rank's ring_positions().
        key: (B, key heads, positions, width); each key head serves equally many query heads.
        value: like `key`.
        group: the ranks that share a sequence.
        scale: factor of products of queries and keys; None means 1 / sqrt(width).

    Returns:
        The attention, (B, heads, positions, width).
    """
    output: Tensor = _Ring.apply(query, torch.stack([key, value]), group, scale)
    return output


class _Ring(torch.autograd.Function):
    """Both passes send the same keys and values around the ring; the backward pass their gradients, too."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys_values: Tensor, group: dist.ProcessGroup, scale: float | None) -> Tensor:
        """The attention; `keys_values` is keys and values, (2, B, key heads, positions, width)."""
        output = torch.zeros_like(query, dtype=torch.float32)
        sums = output.new_full(output.shape[:-1], -torch.inf)
        for hop, held in enumerate(_around(keys_values, group)):
            rows, columns = _seen(hop, group, query.shape[2])
            key, value = _for_heads(held[..., columns, :], query.shape[1])
            part, part_sums = attended(query[:, :, rows].contiguous(), key, value, causal=hop == 0, scale=scale)
            both = torch.logaddexp(sums[:, :, rows], part_sums)
            before, now = ((old - both).exp()[..., None] for old in (sums[:, :, rows], part_sums))
            output[:, :, rows] = output[:, :, rows] * before + part * now
            sums[:, :, rows] = both
        answer = output.to(query.dtype)
        ctx.save_for_backward(query, keys_values, answer, sums)
        ctx.way = group, scale
        return answer

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Exact gradients: given the log-sum-exp over all positions, the parts' gradients add up to the whole."""
        query, keys_values, answer, sums = ctx.saved_tensors
        group, scale = ctx.way
        of_query = torch.zeros_like(query, dtype=torch.float32)
        of_keys_values = torch.zeros_like(keys_values, dtype=torch.float32)
        for hop, held in enumerate(_around(keys_values, group)):
            rows, columns = _seen(hop, group, query.shape[2])
            part_query, part_output, part_gradient = (
                tensor[:, :, rows].contiguous() for tensor in (query, answer, gradient)
            )
            key, value = _for_heads(held[..., columns, :], query.shape[1])
            part_sums = sums[:, :, rows].contiguous()
            grads = gradients(
                part_gradient, part_query, key, value, part_output, part_sums, causal=hop == 0, scale=scale
            )
            of_query[:, :, rows] += grads[0]
            of_keys_values[..., columns, :] += torch.stack(
                [_of_key_heads(part, keys_values.shape[2]) for part in grads[1:]]
            )
            of_keys_values = _Passed(of_keys_values, group).received()
        return of_query.to(query.dtype), of_keys_values.to(keys_values.dtype), None, None


def _seen(hop: int, group: dist.ProcessGroup, positions: int) -> tuple[slice, slice]:
    """Slices of this rank's queries, and of the keys received after `hop` hops that they see."""
    everything, half = slice(None), positions // 2
    if hop == 0:
        return everything, everything
    if hop <= dist.get_rank(group):  # an earlier rank's: its first chunk precedes both of ours, its second follows
        return everything, slice(half)
    return slice(half, None), everything


def _for_heads(keys_values: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values repeated for each query head."""
    key, value = keys_values.repeat_interleave(heads // keys_values.shape[2], 2)
    return key, value


def _of_key_heads(gradient: Tensor, heads: int) -> Tensor:
    examples, _, positions, width = gradient.shape
    return gradient.float().reshape(examples, heads, -1, positions, width).sum(2)


def _around(local: Tensor, group: dist.ProcessGroup) -> Iterator[Tensor]:
    """Each rank's tensor: this rank's, then those of the ranks before it; the next is received meanwhile."""
    held = local.contiguous()
    for left in reversed(range(dist.get_world_size(group))):
        passed = _Passed(held, group) if left else None
        yield held
        if passed:
            held = passed.received()


class _Passed:
    """An asynchronous send to the next rank, and receive from the previous one."""

    def __init__(self, tensor: Tensor, group: dist.ProcessGroup) -> None:
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        self._sent, self._received = tensor, torch.empty_like(tensor)
        self._waiting = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, self._sent, group=group, group_peer=(rank + 1) % ranks),
                dist.P2POp(dist.irecv, self._received, group=group, group_peer=(rank - 1) % ranks),
            ]
        )

    def received(self) -> Tensor:
        """Wait for the received tensor."""
        for work in self._waiting:
            work.wait()
        return self._received
