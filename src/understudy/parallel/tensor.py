"""Tensor parallel: each layer split over processes that read the same examples (Shoeybi et al. 2019).

The splitting is transformers': its architectures bring a plan, which says of each module how. A recipe may bring one,
too, for an architecture that has none.
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
"""Transformers' style for norms of single heads. Its own way sums what has been accumulated: after the second
micro-batch, the sums of the first once more.
"""
PACKED = {"packed_colwise", "packed_rowwise"}
"""Styles of experts. Models are read, saved and kept in checkpoints by parts that are one piece of a weight."""


def tensor_parallel(
    model: nn.Module, mesh: DeviceMesh, given: Mapping[str, str], where: str, *, by_position: bool = False
) -> None:
    """Split a model's layers in place: each rank keeps its part.

    Args:
        model: whole, the same on all ranks; its network of transformers is its submodule `net`.
        mesh: one-dimensional, over the ranks that share the layers.
        given: the recipe's plan, which goes before the architecture's.
        where: the recipe's path of the training, for errors.
        by_position: whether ranks have some positions each, where layers are whole.

    Raises:
        InputError: the model has no plan, the plan names what is not there, heads do not divide, or weights are packed.
    """
    from transformers import PreTrainedModel
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    net = model.get_submodule("net")
    plan = {**_own_plan(net), **given}
    _check(net, plan, given, mesh.size(), where)
    expanded = dict(_expanded(net, plan))
    _refuse_packed(expanded, where)
    partial = [module for name, module in net.named_modules() if expanded.get(name) == PARTIAL]
    expanded = {name: style for name, style in expanded.items() if style != PARTIAL}
    if by_position:
        expanded = sequence_parallel(net, expanded, mesh, where)
    apply_tensor_parallelism(net, mesh, expanded)
    for module in partial:
        sum_gradients(module, mesh.get_group())
    if isinstance(net, PreTrainedModel):
        net.tie_weights()  # a tied weight was split under the first of its names alone


def has_plan(model: nn.Module) -> bool:
    """Whether the architecture says itself how it is split."""
    return bool(_own_plan(model.get_submodule("net")))


def _own_plan(net: nn.Module) -> dict[str, str]:
    return dict(getattr(net, "tp_plan", None) or {})


def _check(net: nn.Module, plan: Mapping[str, str], given: Mapping[str, str], parts: int, where: str) -> None:
    from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

    if not plan:
        raise InputError(
            f"{where}.strategy: {type(net).__name__} has no plan for tensor parallel; give one as {where}.tensor_plan, "
            "or use fsdp"
        )
    names = {_generic(name) for name, _ in [*net.named_modules(), *net.named_parameters()]}
    for name, style in given.items():
        if name not in names:
            raise InputError(f"{where}.tensor_plan.{name}: {type(net).__name__} has no such module")
        if style not in ALL_PARALLEL_STYLES:
            known = ", ".join(sorted(ALL_PARALLEL_STYLES))
            raise InputError(f"{where}.tensor_plan.{name}: {style} is no style of transformers ({known})")
    check_heads(getattr(net, "config", None), parts, "tp", where)


def _refuse_packed(expanded: Mapping[str, str], where: str) -> None:
    packed = next((name for name, style in expanded.items() if style in PACKED), None)
    if packed:
        raise InputError(
            f"{where}.strategy: tp would split {packed}, in which weights are packed, so that a process has parts "
            "of each; use fsdp, pp or cp"
        )


def _expanded(net: nn.Module, plan: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The plan for each module by its own name, its parameters before it; a rule of a module holds for those too."""
    once = {name for name, _ in net.named_parameters()}  # a tied weight under its first name
    for name, module in net.named_modules():
        style = plan.get(_generic(name))
        for parameter, _ in module.named_parameters(recurse=False):
            whole = f"{name}.{parameter}" if name else parameter
            if whole in once and (chosen := plan.get(_generic(whole), style)):
                yield whole, chosen
        if style:
            yield name, style


def _generic(name: str) -> str:
    """The name with * for each number, as plans have it."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)
