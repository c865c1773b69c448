"""Sequence parallel: between split layers, each tp process has some of the positions (Korthikanti et al. 2022).

Norms and the sums between layers are computed and saved for the backward pass once, not by every process. In split
layers each process has all positions: they are all-gathered before, and reduce-scattered after.
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
"""Name of an added transformers style: rowwise, with sums reduce-scattered over positions."""
STYLES = {"colwise", "rowwise"}
POSITIONS = Shard(1)


def sequence_parallel(net: nn.Module, plan: Mapping[str, str], mesh: DeviceMesh, path: str) -> dict[str, str]:
    """Split the positions in a network's blocks over ranks, in place; return the tensor-parallel plan for it.

    Args:
        net: whole, its layers not split yet; its blocks take and return (B, positions, width).
        plan: the style of each split module and parameter.
        mesh: one-dimensional, over the ranks that share the layers; their number divides the number of positions.
        path: the training's path in the recipe, for errors.

    Raises:
        InputError: a block has a style other than colwise and rowwise.
    """
    from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES
    from transformers.distributed.tensor_parallel import RowwiseParallel

    ALL_PARALLEL_STYLES.register(SCATTERED, RowwiseParallel(output_layouts=POSITIONS))
    net_blocks = blocks(net)
    block_names = _below(net, net_blocks)
    block_plan = {name: style for name, style in plan.items() if name in block_names}
    for name, style in block_plan.items():
        if style not in STYLES:
            raise InputError(
                f"{path}.strategy.sequence_parallel: {name} is split as {style}, but only colwise and "
                "rowwise are supported; leave it out"
            )
    split = {module for name, module in net.named_modules() if name in block_plan}
    for block in net_blocks:
        for child in block.children():
            if split & set(child.modules()):
                child.register_forward_pre_hook(_on_hidden(lambda local: _all_positions(local, mesh)), with_kwargs=True)
            else:
                sum_gradients(child, mesh.get_group())
    net_blocks[0].register_forward_pre_hook(_on_hidden(lambda hidden: _own_positions(hidden, mesh)), with_kwargs=True)
    net_blocks[-1].register_forward_hook(lambda _, __, local: _all_positions(local, mesh).to_local())
    return {**plan, **{name: SCATTERED for name, style in block_plan.items() if style == "rowwise"}}


def _below(net: nn.Module, net_blocks: list[nn.Module]) -> set[str]:
    """The names of the blocks' modules and parameters."""
    prefixes = tuple(f"{name}." for name, module in net.named_modules() if module in net_blocks)
    return {name for name, _ in (*net.named_modules(), *net.named_parameters()) if name.startswith(prefixes)}


def _on_hidden(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """A hook that changes the hidden states."""

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": change(kwargs["hidden_states"])}

    return hook


def _own_positions(hidden: Tensor, mesh: DeviceMesh) -> Tensor:
    """This rank's positions."""
    replicated = DTensor.from_local(hidden, mesh, [Replicate()], run_check=False)
    local: Tensor = replicated.redistribute(placements=[POSITIONS]).to_local()
    return local


def _all_positions(local: Tensor, mesh: DeviceMesh) -> DTensor:
    """All ranks' positions. Gradients, which differ by rank, are reduce-scattered."""
    return DTensor.from_local(local, mesh, [POSITIONS], run_check=False).redistribute(placements=[Replicate()])
