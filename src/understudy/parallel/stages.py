"""A model cut into stages: each has some of its repeated blocks, the first and last also the modules around them.

A stage runs the architecture's own code from its first line to its last. Modules of other stages are placeholders:
blocks return their input, and other modules zeros that take no memory. So no code here depends on an architecture.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from understudy.parallel.layout import Layout, OutputSpec


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch on its way through the stages."""

    inputs: Tensor
    placed: Mapping[str, Tensor]
    """The model's keyword arguments."""
    read: Callable[[Any], Tensor]
    """Maps the last stage's States to the result."""
    context: Callable[[], AbstractContextManager[None]]
    """The context in which stages compute."""


@dataclass
class Passing:
    """The current input and output of a stage."""

    examples: int = 0
    received: Tensor | None = None
    sent: Tensor | None = None


class Absent(nn.Module):
    """Placeholder for a module of another stage.

    Its configuration and the types of its weights can still be read, as some architectures do.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.__dict__["absent"] = _without_memory(module)  # not registered: not part of the model

    def __getattr__(self, name: str) -> Any:
        absent = self.__dict__.get("absent")
        if absent is None or name.startswith("_"):
            return super().__getattr__(name)
        return getattr(absent, name)


def _without_memory(module: nn.Module) -> nn.Module:
    """The same structure on the meta device, so that the module can be freed.

    Hooks and a patched forward are left out: they reference the module, too.
    """
    shell = copy.copy(module)
    hooks = {name: type(value)() for name, value in shell.__dict__.items() if "_hooks" in name}
    shell.__dict__.update(hooks)
    shell.__dict__.pop("forward", None)
    shell._modules = {name: child and _without_memory(child) for name, child in module._modules.items()}
    shell._parameters = {
        name: weight if weight is None else nn.Parameter(_shape_of(weight), requires_grad=False)
        for name, weight in module._parameters.items()
    }
    shell._buffers = {name: buffer if buffer is None else _shape_of(buffer) for name, buffer in module._buffers.items()}
    return shell


def _shape_of(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


class Silent(Absent):
    """Placeholder for a module before or after the blocks: it returns zeros."""

    def __init__(self, module: nn.Module, output: OutputSpec | None, passing: Passing) -> None:
        super().__init__(module)
        self.__dict__["output"], self.__dict__["passing"] = output, passing

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Zeros in the shape of the module's output."""
        output, passing = self.__dict__["output"], self.__dict__["passing"]
        tensors = [tensor for tensor in (*args, *kwargs.values()) if isinstance(tensor, Tensor)]
        empty: Tensor = output.empty(passing.examples, tensors[0].device)
        return empty


class Skipped(Absent):
    """Placeholder for a block: it returns its input.

    The last one before a stage's blocks returns the tensor received from another stage, and the first one after them
    stores the tensor to send.
    """

    def __init__(self, module: nn.Module, passing: Passing, *, receives: bool, sends: bool) -> None:
        super().__init__(module)
        self.__dict__["passing"], self.__dict__["way"] = passing, (receives, sends)

    def forward(self, hidden: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        """The hidden states after the block."""
        passing, (receives, sends) = self.__dict__["passing"], self.__dict__["way"]
        if sends:
            passing.sent = hidden
        return passing.received if receives else hidden


@dataclass(frozen=True)
class Cut:
    """A rank's stages of a model."""

    rank_model: nn.Module
    """The rank's modules, and those tied to them, under the whole model's names; it cannot be run."""
    stages: tuple[tuple[nn.Module, Passing], ...]
    """A model to run for each stage; they share their parameters with `rank_model`."""
    tied: tuple[nn.Module, ...]
    """Modules of `rank_model` that the rank does not run, with parameters tied to a stage's."""
    is_tied: bool
    """Whether a stage of any rank shares a parameter with another stage."""


def cut(model: nn.Module, model_layout: Layout, parts: Sequence[range], rank_stages: Sequence[int]) -> Cut:
    """Cut a model into a rank's stages; do not use the given one afterwards.

    Args:
        model: whole.
        model_layout: its layout.
        parts: the blocks of each stage.
        rank_stages: the rank's stages.
    """
    modules = dict(model.named_modules())
    last = len(parts) - 1
    homes = {
        **dict.fromkeys(model_layout.before, 0),
        **dict.fromkeys(model_layout.after, last),
        **{model_layout.blocks[block]: stage for stage, blocks in enumerate(parts) for block in blocks},
    }
    tied = {name for name in homes if _shares(modules, homes, name, rank_stages)}
    absent = {
        modules[name]: Absent(modules[name])
        for name, home in homes.items()
        if home not in rank_stages and name not in tied
    }
    passing = [Passing() for _ in rank_stages]
    stages = tuple(
        (_stage(model, modules, model_layout, parts, stage, stage_passing), stage_passing)
        for stage, stage_passing in zip(rank_stages, passing, strict=True)
    )
    tied_modules = tuple(modules[name] for name in sorted(tied))
    return Cut(_with(model, absent), stages, tied_modules, _is_tied(modules, homes))


def _is_tied(modules: Mapping[str, nn.Module], homes: Mapping[str, int]) -> bool:
    stages: dict[int, set[int]] = {}
    for name, home in homes.items():
        for parameter in modules[name].parameters():
            stages.setdefault(id(parameter), set()).add(home)
    return any(len(homes_of_parameter) > 1 for homes_of_parameter in stages.values())


def _shares(modules: Mapping[str, nn.Module], homes: Mapping[str, int], name: str, rank_stages: Sequence[int]) -> bool:
    """Whether a module of another rank shares a parameter with one of this rank."""
    if homes[name] in rank_stages:
        return False
    parameters = {id(parameter) for parameter in modules[name].parameters()}
    rank_modules = (modules[rank_module] for rank_module, home in homes.items() if home in rank_stages)
    return any(id(parameter) in parameters for module in rank_modules for parameter in module.parameters())


def _stage(
    model: nn.Module,
    modules: Mapping[str, nn.Module],
    model_layout: Layout,
    parts: Sequence[range],
    stage: int,
    passing: Passing,
) -> nn.Module:
    absent: dict[nn.Module, nn.Module] = {}
    blocks = parts[stage]
    for block, name in enumerate(model_layout.blocks):
        if block not in blocks:
            receives, sends = block == blocks.start - 1, block == blocks.stop
            absent[modules[name]] = Skipped(modules[name], passing, receives=receives, sends=sends)
    for is_included, outer_modules in (
        (stage == 0, model_layout.before),
        (stage == len(parts) - 1, model_layout.after),
    ):
        if not is_included:
            absent |= {modules[name]: Silent(modules[name], output, passing) for name, output in outer_modules.items()}
    return _with(model, absent)


def _with(module: nn.Module, absent: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """The module with some descendants replaced; submodules without any of these are shared, not copied."""
    if module in absent:
        return absent[module]
    children = {name: _with(child, absent) if child else None for name, child in module._modules.items()}
    if all(child is module._modules[name] for name, child in children.items()):
        return module
    shell = copy.copy(module)
    shell._modules = children
    return shell


def without_unused(rank_model: nn.Module, tied: Sequence[nn.Module], run: Sequence[nn.Module]) -> nn.Module:
    """A rank's model with its weights, without the modules that the rank does not run, except for tied parameters.

    Args:
        rank_model: as in Cut.
        tied: as in Cut.
        run: the rank's stages.
    """
    used = {id(parameter) for module in run for parameter in module.parameters()}
    return _with(rank_model, {module: _alone(module, used) for module in tied})


def _alone(module: nn.Module, used: set[int]) -> nn.Module:
    """A module with the same structure, without its code, and with only some of its parameters."""
    skeleton = nn.Module()
    for name, parameter in module._parameters.items():
        if id(parameter) in used:
            skeleton.register_parameter(name, parameter)
    for name, child in module.named_children():
        if any(id(parameter) in used for parameter in child.parameters()):
            skeleton.add_module(name, _alone(child, used))
    return skeleton


class Stage(nn.Module):
    """One stage, from the output of the previous one to the input of the next.

    Args:
        model: one of Cut.stages.
        passing: the input and output of `model`.
        tied: modules that are not run, with parameters tied to the stage's.
        sends: the type of the tensor to send.
        is_last: whether it computes the result.
    """

    def __init__(
        self, model: nn.Module, passing: Passing, tied: Sequence[nn.Module], sends: torch.dtype, *, is_last: bool
    ) -> None:
        super().__init__()
        self.model = model
        # Not a ModuleList, which blocks() searches for: a tied weight may outweigh all of a stage's blocks.
        self.tied = nn.ModuleDict({str(number): module for number, module in enumerate(tied)})
        self.is_last, self.sends = is_last, sends
        self.parts: Sequence[MicroBatch] = ()
        self._passing = passing

    def forward(self, *received: Tensor, part: int) -> Tensor:
        """The tensor to send, (B, ...), or the last stage's result.

        Args:
            received: the previous stage's output, if there is one.
            part: index of the micro-batch in `parts`.
        """
        passing, micro_batch = self._passing, self.parts[part]
        passing.examples, passing.received = len(micro_batch.inputs), received[0] if received else None
        reduce = micro_batch.read if self.is_last else lambda _: torch.zeros(())
        with micro_batch.context():
            result: Tensor = self.model(micro_batch.inputs, **micro_batch.placed, reduce=reduce)
        sent, passing.sent, passing.received = passing.sent, None, None
        if self.is_last:
            return result
        assert sent is not None, "the placeholder after the stage's last block has stored it"
        return sent.to(self.sends)
