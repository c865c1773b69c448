"""Context parallel: each sequence is split over processes, which communicate in attention.

Either by all-to-all as in DeepSpeed-Ulysses (Jacobs et al. 2023): a rank has some positions of all heads, and in
attention all positions of some heads. Or in a ring, in which keys and values pass from rank to rank.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from understudy.errors import InputError
from understudy.parallel.heads import check_heads
from understudy.parallel.ring import ring_attention, ring_positions
from understudy.recipe import CommType

NAMES: dict[CommType, str] = {"alltoall": "understudy_context", "ring": "understudy_ring"}
"""Names of the attention functions in transformers' registry."""


@dataclass(frozen=True)
class _Context:
    """Parameters of attention besides its inputs."""

    group: dist.ProcessGroup
    path: str


def own_positions(length: int, mesh: DeviceMesh, comm_type: CommType, device: torch.device) -> Tensor:
    """This rank's positions of a sequence, int64 (length / ranks,), in order."""
    rank, ranks = mesh.get_local_rank(), mesh.size()
    if comm_type == "ring":
        return ring_positions(length, rank, ranks, device)
    width = length // ranks
    return torch.arange(rank * width, (rank + 1) * width, device=device)


def document_mask(positions: Tensor) -> Tensor:
    """Attention mask, boolean (B, 1, L, L): each position sees itself and those before it in its document.

    Args:
        positions: int64 (B, L), of whole sequences; a document begins at each 0.
    """
    document = (positions == 0).cumsum(1)
    return (document[:, :, None] == document[:, None, :]).tril()[:, None]


def context_parallel(model: nn.Module, mesh: DeviceMesh, comm_type: CommType, heads_split: int, path: str) -> None:
    """Make a model's attention cover the positions of all ranks, in place.

    Args:
        model: its transformers network is its submodule `net`; its inputs are a rank's tokens and their positions.
        mesh: one-dimensional, over the ranks that share a sequence.
        comm_type: the communication between them.
        heads_split: number of ranks over which tensor parallel splits heads.
        path: the training's path in the recipe, for errors.

    Raises:
        InputError: its attention is not transformers', does not cover all earlier positions, or heads do not divide.
    """
    from transformers import AttentionInterface, PreTrainedModel

    net = model.get_submodule("net")
    if not isinstance(net, PreTrainedModel):
        raise InputError(f"{path}.strategy: cp needs a transformers model, since it replaces the attention")
    _check(net.config, type(net).__name__, path)
    if comm_type == "alltoall":
        check_heads(net.config, mesh.size() * heads_split, "cp x tp", path)
    AttentionInterface.register(
        NAMES[comm_type], {"alltoall": _all_to_all_attention, "ring": _ring_attention}[comm_type]
    )
    net.set_attn_implementation(NAMES[comm_type])
    for module in net.modules():
        module.__dict__["context"] = _Context(mesh.get_group(), path)


def _check(config: Any, name: str, path: str) -> None:
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention"} or getattr(config, "sliding_window", None):
        raise InputError(f"{path}.strategy: cp attends to all earlier positions, and {name} only to some; use fsdp")


def _all_to_all_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention over all positions: from (B, heads, positions, width) to (B, positions, heads, width).

    A mask covers all positions, too: for an unknown attention function transformers creates none, but passes one on.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    group = module.__dict__["context"].group
    query, key, value = (_Exchange.apply(tensor, group, 1, 2) for tensor in (query, key, value))
    attended, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    output: Tensor = _Exchange.apply(attended, group, 1, 2)
    return output, None


def _ring_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Ring attention, with inputs and outputs as of _all_to_all_attention()."""
    assert attention_mask is None, "the recipe's rules leave no documents apart in a ring"
    context = module.__dict__["context"]
    if options.get("dropout"):
        raise InputError(
            f"{context.path}.strategy: a ring has no attention dropout; set it to 0 in the model's config, or leave "
            "out cp_comm_type"
        )
    attended = ring_attention(query, key, value, context.group, options.get("scaling"))
    return attended.transpose(1, 2).contiguous(), None


class _Exchange(torch.autograd.Function):
    """All-to-all: scatter the chunks of one dimension, and concatenate the received ones along another."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup, scattered: int, gathered: int) -> Tensor:
        """The exchanged tensor."""
        ctx.arguments = group, scattered, gathered
        return _exchanged(tensor, group, scattered, gathered)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient, exchanged back."""
        group, scattered, gathered = ctx.arguments
        return _exchanged(gradient, group, gathered, scattered), None, None, None


def _exchanged(tensor: Tensor, group: dist.ProcessGroup, scattered: int, gathered: int) -> Tensor:
    parts = torch.stack(tensor.chunk(dist.get_world_size(group), scattered))
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts, group=group)
    return torch.cat(received.unbind(), gathered)
