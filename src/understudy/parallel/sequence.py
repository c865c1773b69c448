"""Sequence parallel: between split layers, processes of tp have some positions each (Korthikanti et al. 2022).

Norms and the sums between layers are computed, and kept for the backward pass, once and not by every process. Where
layers are split each process has all positions: they are gathered before, and scattered again behind.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from understudy.errors import InputError
from understudy.parallel.blocks import blocks
from understudy.parallel.partial_gradients import sum_gradients

SCATTERED = "understudy_rowwise"
"""Among transformers' styles: rowwise, whose sums are scattered over positions."""
STYLES = {"colwise", "rowwise"}
POSITIONS = Shard(1)


def sequence_parallel(net: nn.Module, plan: Mapping[str, str], mesh: DeviceMesh, where: str) -> dict[str, str]:
    """Let a network's blocks work on some positions each, in place; and the plan that goes with it.

    Args:
        net: whole, before its layers are split; its blocks take and give (B, positions, width).
        plan: how each of its modules and parameters is split.
        mesh: one-dimensional, over the ranks that share the layers, which divide the number of positions.
        where: the recipe's path of the training, for errors.

    Raises:
        InputError: within blocks something is split otherwise than colwise and rowwise.
    """
    from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES
    from transformers.distributed.tensor_parallel import RowwiseParallel

    ALL_PARALLEL_STYLES.register(SCATTERED, RowwiseParallel(output_layouts=POSITIONS))
    found = blocks(net)
    below = _below(net, found)
    inside = {name: style for name, style in plan.items() if name in below}
    for name, style in inside.items():
        if style not in STYLES:
            raise InputError(
                f"{where}.strategy.sequence_parallel: {name} is split as {style}, and it goes with colwise and rowwise "
                "alone; leave it out"
            )
    split = {module for name, module in net.named_modules() if name in inside}
    for block in found:
        for child in block.children():
            if split & set(child.modules()):
                child.register_forward_pre_hook(_on_hidden(lambda own: _whole(own, mesh)), with_kwargs=True)
            else:
                sum_gradients(child, mesh.get_group())
    found[0].register_forward_pre_hook(_on_hidden(lambda whole: _part(whole, mesh)), with_kwargs=True)
    found[-1].register_forward_hook(lambda _, __, own: _whole(own, mesh).to_local())
    return {**plan, **{name: SCATTERED for name, style in inside.items() if style == "rowwise"}}


def _below(net: nn.Module, found: list[nn.Module]) -> set[str]:
    """The names of the blocks' modules and parameters."""
    prefixes = tuple(f"{name}." for name, module in net.named_modules() if module in found)
    return {name for name, _ in (*net.named_modules(), *net.named_parameters()) if name.startswith(prefixes)}


def _on_hidden(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """A hook that changes what goes from block to block."""

    def hook(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if given:
            return (change(given[0]), *given[1:]), named
        return given, {**named, "hidden_states": change(named["hidden_states"])}

    return hook


def _part(whole: Tensor, mesh: DeviceMesh) -> Tensor:
    """This rank's positions."""
    made = DTensor.from_local(whole, mesh, [Replicate()], run_check=False)
    own: Tensor = made.redistribute(placements=[POSITIONS]).to_local()
    return own


def _whole(own: Tensor, mesh: DeviceMesh) -> DTensor:
    """All ranks' positions. Its gradients are summed over ranks, where they differ, and scattered."""
    return DTensor.from_local(own, mesh, [POSITIONS], run_check=False).redistribute(placements=[Replicate()])
