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
        for hop, received in enumerate(_rotate(keys_values, group)):
            rows, columns = _visible(hop, group, query.shape[2])
            key, value = _for_heads(received[..., columns, :], query.shape[1])
            part, part_sums = attended(query[:, :, rows].contiguous(), key, value, causal=hop == 0, scale=scale)
            combined = torch.logaddexp(sums[:, :, rows], part_sums)
            old_weight, part_weight = ((old - combined).exp()[..., None] for old in (sums[:, :, rows], part_sums))
            output[:, :, rows] = output[:, :, rows] * old_weight + part * part_weight
            sums[:, :, rows] = combined
        attention = output.to(query.dtype)
        ctx.save_for_backward(query, keys_values, attention, sums)
        ctx.arguments = group, scale
        return attention

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Exact gradients: given the log-sum-exp over all positions, the parts' gradients add up to the whole."""
        query, keys_values, attention, sums = ctx.saved_tensors
        group, scale = ctx.arguments
        query_gradient = torch.zeros_like(query, dtype=torch.float32)
        keys_values_gradient = torch.zeros_like(keys_values, dtype=torch.float32)
        for hop, received in enumerate(_rotate(keys_values, group)):
            rows, columns = _visible(hop, group, query.shape[2])
            part_query, part_output, part_gradient = (
                tensor[:, :, rows].contiguous() for tensor in (query, attention, gradient)
            )
            key, value = _for_heads(received[..., columns, :], query.shape[1])
            part_sums = sums[:, :, rows].contiguous()
            grads = gradients(
                part_gradient, part_query, key, value, part_output, part_sums, causal=hop == 0, scale=scale
            )
            query_gradient[:, :, rows] += grads[0]
            keys_values_gradient[..., columns, :] += torch.stack(
                [_sum_over_query_heads(part, keys_values.shape[2]) for part in grads[1:]]
            )
            keys_values_gradient = _Exchange(keys_values_gradient, group).received()
        return query_gradient.to(query.dtype), keys_values_gradient.to(keys_values.dtype), None, None


def _visible(hop: int, group: dist.ProcessGroup, positions: int) -> tuple[slice, slice]:
    """Slices of this rank's queries, and of the keys that they see among those received after `hop` hops."""
    all_positions, half = slice(None), positions // 2
    if hop == 0:
        return all_positions, all_positions
    if hop <= dist.get_rank(group):  # an earlier rank's: its first chunk precedes both of ours, its second follows
        return all_positions, slice(half)
    return slice(half, None), all_positions


def _for_heads(keys_values: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values repeated for each query head."""
    key, value = keys_values.repeat_interleave(heads // keys_values.shape[2], 2)
    return key, value


def _sum_over_query_heads(gradient: Tensor, heads: int) -> Tensor:
    examples, _, positions, width = gradient.shape
    return gradient.float().reshape(examples, heads, -1, positions, width).sum(2)


def _rotate(local: Tensor, group: dist.ProcessGroup) -> Iterator[Tensor]:
    """Each rank's tensor: this rank's, then those of the ranks before it; the next is received meanwhile."""
    current = local.contiguous()
    for remaining in reversed(range(dist.get_world_size(group))):
        exchange = _Exchange(current, group) if remaining else None
        yield current
        if exchange:
            current = exchange.received()


class _Exchange:
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
