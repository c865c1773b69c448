"""A model's modules in execution order: its repeated blocks, the modules before and after them, and their costs.

Detected by running the model once, so that it works for architectures that are not listed anywhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from understudy.errors import InputError
from understudy.parallel.blocks import blocks

EXAMPLES = 2
"""Batch size of that run: a first dimension of this size is the batch. Not 1, which a broadcast has."""


@dataclass(frozen=True)
class OutputSpec:
    """Shape and type of a module's output."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self, examples: int, device: torch.device) -> Tensor:
        """A tensor like the output for so many examples, of zeros that take no memory."""
        shape = [examples if size == EXAMPLES and dimension == 0 else size for dimension, size in enumerate(self.shape)]
        return torch.zeros((), dtype=self.dtype, device=device).expand(shape)


@dataclass(frozen=True)
class Layout:
    """A model's modules in execution order, by name."""

    blocks: tuple[str, ...]
    before: dict[str, OutputSpec | None]
    """The outermost modules with parameters that run before the blocks, or never, and their outputs."""
    after: dict[str, OutputSpec | None]
    hidden: OutputSpec
    """The hidden states between blocks."""
    costs: tuple[int, ...]
    """Floating-point operations of each block's forward pass."""
    first: int
    """Cost of everything before the blocks."""
    last: int
    """Cost of everything after them."""


def layout(model: nn.Module, inputs: Tensor, path: str) -> Layout:
    """The layout of a model.

    Args:
        model: is run once; without memory, if it can.
        inputs: two examples.
        path: the training's path in the recipe, for errors.

    Raises:
        InputError: the model is not a chain of blocks.
    """
    assert len(inputs) == EXAMPLES
    names = {module: name for name, module in model.named_modules()}
    model_blocks = blocks(model)
    if len(model_blocks) < 2:
        raise InputError(
            f"{path}.strategy: pp cuts a model between the blocks of an nn.ModuleList, and it has none with two or more"
        )
    outer_modules = list(_outermost(model, set(model_blocks), path))
    calls, total = _watched(model, inputs, (*model_blocks, *outer_modules))
    _check_outputs([(module, output) for module, _, output, _ in calls if module in outer_modules], names, path)
    order = [module for module, *_ in calls]
    _check(model_blocks, outer_modules, order, [call for call in calls if call[0] in model_blocks], names, path)
    modules_after = order[order.index(model_blocks[-1]) + 1 :]
    costs_by_module = {module: cost for module, _, _, cost in calls}
    outputs = {module: _output_of(output) for module, _, output, _ in calls}
    hidden = outputs[model_blocks[0]]
    assert hidden is not None
    costs = tuple(costs_by_module[block] for block in model_blocks)
    last = sum(costs_by_module[module] for module in modules_after)
    return Layout(
        blocks=tuple(names[block] for block in model_blocks),
        before={names[module]: outputs.get(module) for module in outer_modules if module not in modules_after},
        after={names[module]: outputs[module] for module in modules_after},
        hidden=hidden,
        costs=costs,
        first=total - sum(costs) - last,
        last=last,
    )


Call = tuple[nn.Module, Any, Any, int]
"""A module, its inputs, its output, and its cost."""


def _watched(model: nn.Module, inputs: Tensor, modules: Sequence[nn.Module]) -> tuple[list[Call], int]:
    """The calls of some modules in a forward pass, and the cost of the whole pass."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        watch = _Watch(counter)
        handles = [handle for module in modules for handle in watch.hooks(module)]
        model(inputs)
    for handle in handles:
        handle.remove()
    return watch.calls, int(counter.get_total_flops())


@dataclass
class _Watch:
    """Records module calls, in order."""

    counter: Any
    calls: list[Call] = field(default_factory=list)
    _since: list[int] = field(default_factory=list)

    def hooks(self, module: nn.Module) -> Iterator[Any]:
        yield module.register_forward_pre_hook(lambda *_: self._since.append(self.counter.get_total_flops()))
        yield module.register_forward_hook(self._called)

    def _called(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.calls.append((module, inputs, output, self.counter.get_total_flops() - self._since.pop()))


def _outermost(module: nn.Module, model_blocks: set[nn.Module], path: str) -> Iterator[nn.Module]:
    """The outermost modules with parameters outside the blocks."""
    if next(module.parameters(recurse=False), None) is not None:
        raise InputError(
            f"{path}.strategy: pp cannot tell to which stage the parameters of {type(module).__name__} belong, which "
            "are outside its blocks and in no submodule; use fsdp"
        )
    for child in module.children():
        if child in model_blocks:
            continue
        if model_blocks & set(child.modules()):
            yield from _outermost(child, model_blocks, path)
        elif next(child.parameters(), None) is not None:
            yield child


def _check(
    model_blocks: Sequence[nn.Module],
    outer_modules: Sequence[nn.Module],
    order: Sequence[nn.Module],
    chain: Sequence[Call],
    names: dict[nn.Module, str],
    path: str,
) -> None:
    fits = [block for block, *_ in chain] == list(model_blocks) and all(
        isinstance(output, Tensor) and inputs and inputs[0] is output
        for (_, _, output, _), (_, inputs, _, _) in pairwise(chain)
    )
    if not fits:
        raise InputError(
            f"{path}.strategy: pp needs a chain of blocks, in which each takes the output of the one before; "
            "this model's blocks are not one; use fsdp"
        )
    between = order[order.index(model_blocks[0]) : order.index(model_blocks[-1])]
    for module in outer_modules:
        if order.count(module) > 1 or module in between:
            raise InputError(
                f"{path}.strategy: pp cannot tell to which stage {names[module]} belongs, which runs between blocks, "
                "or twice; use fsdp"
            )


def _check_outputs(outputs: Sequence[tuple[nn.Module, Any]], names: dict[nn.Module, str], path: str) -> None:
    """A stage without a module outside the blocks replaces its output by zeros, which needs one tensor's shape."""
    for module, output in outputs:
        if not isinstance(output, Tensor):
            raise InputError(
                f"{path}.strategy: pp needs modules outside the blocks to return a tensor, and {names[module]} "
                f"returns a {type(output).__name__}; use fsdp"
            )


def _output_of(output: Any) -> OutputSpec | None:
    return OutputSpec(tuple(output.shape), output.dtype) if isinstance(output, Tensor) else None


def boundaries(model_layout: Layout, stages: int, path: str) -> list[range]:
    """The blocks of each stage, chosen so that the slowest stage is fastest; modules outside the blocks count.

    Raises:
        InputError: there are fewer blocks than stages.
    """
    count = len(model_layout.blocks)
    if count < stages:
        raise InputError(f"{path}.strategy: the model has {count} blocks, too few for {stages} pipeline stages")
    # By the number of blocks in the first stages: the cost of the slowest of these, and the end of each.
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for stage in range(stages):
        fixed_cost = model_layout.first * (stage == 0) + model_layout.last * (stage == stages - 1)
        remaining = stages - stage - 1
        best = {
            end: min(
                (max(slowest, sum(model_layout.costs[start:end]) + fixed_cost), (*ends, end))
                for start, (slowest, ends) in best.items()
                if start < end
            )
            for end in range(stage + 1, count - remaining + 1)
            if any(start < end for start in best)
        }
    ends = (0, *best[count][1])
    return [range(start, end) for start, end in pairwise(ends)]


def stage_costs(model_layout: Layout, parts: Sequence[range]) -> list[int]:
    """Floating-point operations of each stage's forward pass."""
    costs = [sum(model_layout.costs[block] for block in part) for part in parts]
    costs[0] += model_layout.first
    costs[-1] += model_layout.last
    return costs
