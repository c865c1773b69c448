"""Tensor parallel: each layer is split over processes that read the same examples (Shoeybi et al. 2019).

transformers splits the layers, by an architecture's plan, which has a style for each module. A recipe may have a plan,
too, for an architecture without one.
"""

import re
from collections.abc import Iterator, Mapping

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from understudy.errors import InputError
from understudy.parallel.heads import check_heads
from understudy.parallel.partial_gradients import sum_gradients
from understudy.parallel.sequence import sequence_parallel

PARTIAL = "replicated_with_grad_allreduce"
"""transformers' style for norms of single heads. Its implementation sums accumulated gradients: after the second
micro-batch, those of the first once more.
"""
PACKED = {"packed_colwise", "packed_rowwise"}
"""Styles of experts. Loading, saving and checkpoints require that a rank's part is one piece of a weight."""


def tensor_parallel(
    model: nn.Module, mesh: DeviceMesh, overrides: Mapping[str, str], path: str, *, by_position: bool = False
) -> None:
    """Split a model's layers in place: each rank keeps its part.

    Args:
        model: whole, the same on all ranks; its transformers network is its submodule `net`.
        mesh: one-dimensional, over the ranks that share the layers.
        overrides: the recipe's plan, which overrides the architecture's.
        path: the training's path in the recipe, for errors.
        by_position: whether positions are split between split layers (sequence parallel).

    Raises:
        InputError: the model has no plan, the plan has unknown names, heads do not divide, or weights are packed.
    """
    from transformers import PreTrainedModel
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    net = model.get_submodule("net")
    plan = {**_architecture_plan(net), **overrides}
    _check(net, plan, overrides, mesh.size(), path)
    expanded = dict(_expanded(net, plan))
    _refuse_packed(expanded, path)
    partial = [module for name, module in net.named_modules() if expanded.get(name) == PARTIAL]
    expanded = {name: style for name, style in expanded.items() if style != PARTIAL}
    if by_position:
        expanded = sequence_parallel(net, expanded, mesh, path)
    apply_tensor_parallelism(net, mesh, expanded)
    for module in partial:
        sum_gradients(module, mesh.get_group())
    if isinstance(net, PreTrainedModel):
        net.tie_weights()  # a tied weight was split under its first name only


def has_plan(model: nn.Module) -> bool:
    """Whether the architecture has a tensor-parallel plan."""
    return bool(_architecture_plan(model.get_submodule("net")))


def _architecture_plan(net: nn.Module) -> dict[str, str]:
    return dict(getattr(net, "tp_plan", None) or {})


def _check(net: nn.Module, plan: Mapping[str, str], overrides: Mapping[str, str], parts: int, path: str) -> None:
    from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

    if not plan:
        raise InputError(
            f"{path}.strategy: {type(net).__name__} has no plan for tensor parallel; give one as {path}.tensor_plan, "
            "or use fsdp"
        )
    names = {_generic(name) for name, _ in [*net.named_modules(), *net.named_parameters()]}
    for name, style in overrides.items():
        if name not in names:
            raise InputError(f"{path}.tensor_plan.{name}: {type(net).__name__} has no such module")
        if style not in ALL_PARALLEL_STYLES:
            styles = ", ".join(sorted(ALL_PARALLEL_STYLES))
            raise InputError(f"{path}.tensor_plan.{name}: {style} is not a style of transformers ({styles})")
    check_heads(getattr(net, "config", None), parts, "tp", path)


def _refuse_packed(expanded: Mapping[str, str], path: str) -> None:
    packed = next((name for name, style in expanded.items() if style in PACKED), None)
    if packed:
        raise InputError(
            f"{path}.strategy: tp would split {packed}, in which weights are packed, so that a process has parts "
            "of each; use fsdp, pp or cp"
        )


def _expanded(net: nn.Module, plan: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The plan by full module name, parameters before their module; a module's style applies to them too."""
    parameters = {name for name, _ in net.named_parameters()}  # a tied weight under its first name
    for name, module in net.named_modules():
        style = plan.get(_generic(name))
        for parameter, _ in module.named_parameters(recurse=False):
            full_name = f"{name}.{parameter}" if name else parameter
            if full_name in parameters and (chosen := plan.get(_generic(full_name), style)):
                yield full_name, chosen
        if style:
            yield name, style


def _generic(name: str) -> str:
    """The name with * for each number, as in plans."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)
