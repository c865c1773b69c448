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

from understudy.parallel.layout import Layout, Said


@dataclass(frozen=True)
class Asked:
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
    around = {name: type(value)() for name, value in shell.__dict__.items() if "_hooks" in name}
    shell.__dict__.update(around)
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

    def __init__(self, module: nn.Module, said: Said | None, passing: Passing) -> None:
        super().__init__(module)
        self.__dict__["said"], self.__dict__["passing"] = said, passing

    def forward(self, *given: Any, **named: Any) -> Tensor:
        """Zeros in the shape of the module's output."""
        said, passing = self.__dict__["said"], self.__dict__["passing"]
        tensors = [tensor for tensor in (*given, *named.values()) if isinstance(tensor, Tensor)]
        empty: Tensor = said.empty(passing.examples, tensors[0].device)
        return empty


class Skipped(Absent):
    """Placeholder for a block: it returns its input.

    The last one before a stage's blocks returns the tensor received from another stage, and the first one after them
    stores the tensor to send.
    """

    def __init__(self, module: nn.Module, passing: Passing, *, receives: bool, sends: bool) -> None:
        super().__init__(module)
        self.__dict__["passing"], self.__dict__["way"] = passing, (receives, sends)

    def forward(self, hidden: Tensor, *_given: Any, **_named: Any) -> Tensor:
        """The hidden states after the block."""
        passing, (receives, sends) = self.__dict__["passing"], self.__dict__["way"]
        if sends:
            passing.sent = hidden
        return passing.received if receives else hidden


@dataclass(frozen=True)
class Cut:
    """A rank's stages of a model."""

    held: nn.Module
    """All modules of the rank, and those tied to them, under the whole model's names; it cannot be run."""
    stages: tuple[tuple[nn.Module, Passing], ...]
    """A model to run for each stage; they share their parameters with `held`."""
    beside: tuple[nn.Module, ...]
    """Modules of `held` that the rank does not run, with parameters tied to a stage's."""
    is_tied: bool
    """Whether a stage of any rank shares a parameter with another stage."""


def cut(model: nn.Module, found: Layout, parts: Sequence[range], own: Sequence[int]) -> Cut:
    """Cut a model into a rank's stages; do not use the given one afterwards.

    Args:
        model: whole.
        found: its layout.
        parts: the blocks of each stage.
        own: the rank's stages.
    """
    modules = dict(model.named_modules())
    last = len(parts) - 1
    homes = {
        **dict.fromkeys(found.before, 0),
        **dict.fromkeys(found.after, last),
        **{found.blocks[block]: stage for stage, blocks in enumerate(parts) for block in blocks},
    }
    tied = {name for name in homes if _shares(modules, homes, name, own)}
    absent = {
        modules[name]: Absent(modules[name]) for name, home in homes.items() if home not in own and name not in tied
    }
    passing = [Passing() for _ in own]
    stages = tuple(
        (_stage(model, modules, found, parts, stage, through), through)
        for stage, through in zip(own, passing, strict=True)
    )
    beside = tuple(modules[name] for name in sorted(tied))
    return Cut(_with(model, absent), stages, beside, _is_tied(modules, homes))


def _is_tied(modules: Mapping[str, nn.Module], homes: Mapping[str, int]) -> bool:
    stages: dict[int, set[int]] = {}
    for name, home in homes.items():
        for parameter in modules[name].parameters():
            stages.setdefault(id(parameter), set()).add(home)
    return any(len(found) > 1 for found in stages.values())


def _shares(modules: Mapping[str, nn.Module], homes: Mapping[str, int], name: str, own: Sequence[int]) -> bool:
    """Whether a module of another rank shares a parameter with one of this rank."""
    if homes[name] in own:
        return False
    theirs = {id(parameter) for parameter in modules[name].parameters()}
    ours = (modules[other] for other, home in homes.items() if home in own)
    return any(id(parameter) in theirs for module in ours for parameter in module.parameters())


def _stage(
    model: nn.Module,
    modules: Mapping[str, nn.Module],
    found: Layout,
    parts: Sequence[range],
    stage: int,
    passing: Passing,
) -> nn.Module:
    absent: dict[nn.Module, nn.Module] = {}
    blocks = parts[stage]
    for place, name in enumerate(found.blocks):
        if place not in blocks:
            receives, sends = place == blocks.start - 1, place == blocks.stop
            absent[modules[name]] = Skipped(modules[name], passing, receives=receives, sends=sends)
    for is_here, beside in ((stage == 0, found.before), (stage == len(parts) - 1, found.after)):
        if not is_here:
            absent |= {modules[name]: Silent(modules[name], said, passing) for name, said in beside.items()}
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


def with_tied_alone(held: nn.Module, beside: Sequence[nn.Module], run: Sequence[nn.Module]) -> nn.Module:
    """`held`, once it has its weights, without modules that the rank does not run, except for tied parameters.

    Args:
        held: as in Cut.
        beside: as in Cut.
        run: the rank's stages.
    """
    own = {id(parameter) for module in run for parameter in module.parameters()}
    return _with(held, {module: _alone(module, own) for module in beside})


def _alone(module: nn.Module, kept: set[int]) -> nn.Module:
    """A module with the same structure, without its code, and with only some of its parameters."""
    alone = nn.Module()
    for name, parameter in module._parameters.items():
        if id(parameter) in kept:
            alone.register_parameter(name, parameter)
    for name, child in module.named_children():
        if any(id(parameter) in kept for parameter in child.parameters()):
            alone.add_module(name, _alone(child, kept))
    return alone


class Stage(nn.Module):
    """One stage, from the output of the previous one to the input of the next.

    Args:
        model: one of Cut.stages.
        passing: the input and output of `model`.
        beside: modules that are not run, with parameters tied to the stage's.
        sends: the type of the tensor to send.
        is_last: whether it computes the result.
    """

    def __init__(
        self, model: nn.Module, passing: Passing, beside: Sequence[nn.Module], sends: torch.dtype, *, is_last: bool
    ) -> None:
        super().__init__()
        self.model = model
        # Not a ModuleList, which blocks() searches for: a tied weight may outweigh all of a stage's blocks.
        self.beside = nn.ModuleDict({str(number): module for number, module in enumerate(beside)})
        self.is_last, self.sends = is_last, sends
        self.parts: Sequence[Asked] = ()
        self._passing = passing

    def forward(self, *received: Tensor, part: int) -> Tensor:
        """The tensor to send, (B, ...), or the last stage's result.

        Args:
            received: the previous stage's output, if there is one.
            part: index of the micro-batch in `parts`.
        """
        passing, asked = self._passing, self.parts[part]
        passing.examples, passing.received = len(asked.inputs), received[0] if received else None
        read = asked.read if self.is_last else lambda _: torch.zeros(())
        with asked.context():
            answer: Tensor = self.model(asked.inputs, **asked.placed, read=read)
        sent, passing.sent, passing.received = passing.sent, None, None
        if self.is_last:
            return answer
        assert sent is not None, "the block after the last one has kept it"
        return sent.to(self.sends)
