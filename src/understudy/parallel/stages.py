"""A model cut into stages: each has some of its repeated blocks, and the first and the last what runs around them.

A stage runs the architecture's own code from its first line to its last. What other stages have is absent in it: their
blocks hand on what they get, and the rest answers with zeros that take no memory. So nothing here knows an
architecture.
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
    """What the model takes besides."""
    read: Callable[[Any], Tensor]
    """What the last stage makes of what it knows."""
    context: Callable[[], AbstractContextManager[None]]
    """In which stages compute."""


@dataclass
class Passing:
    """What passes through a stage at the moment."""

    examples: int = 0
    received: Tensor | None = None
    sent: Tensor | None = None


class Absent(nn.Module):
    """In the place of a module that another stage has. What it was configured with, and what types its weights have,
    can still be asked of it: some architectures do.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.__dict__["absent"] = _without_memory(module)  # not registered: it is no part of the model

    def __getattr__(self, name: str) -> Any:
        absent = self.__dict__.get("absent")
        if absent is None or name.startswith("_"):
            return super().__getattr__(name)
        return getattr(absent, name)


def _without_memory(module: nn.Module) -> nn.Module:
    """The same structure, so that what the module itself holds can be let go. What was put around it holds it, too."""
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
    """Of what runs before or after the blocks: it answers with zeros."""

    def __init__(self, module: nn.Module, said: Said | None, passing: Passing) -> None:
        super().__init__(module)
        self.__dict__["said"], self.__dict__["passing"] = said, passing

    def forward(self, *given: Any, **named: Any) -> Tensor:
        """Zeros of the shape that the module would answer with."""
        said, passing = self.__dict__["said"], self.__dict__["passing"]
        tensors = [tensor for tensor in (*given, *named.values()) if isinstance(tensor, Tensor)]
        empty: Tensor = said.empty(passing.examples, tensors[0].device)
        return empty


class Skipped(Absent):
    """Of a block: it hands on what it gets. The last one before a stage's own hands over what another stage has sent,
    and the first one after them keeps what is to be sent.
    """

    def __init__(self, module: nn.Module, passing: Passing, *, receives: bool, sends: bool) -> None:
        super().__init__(module)
        self.__dict__["passing"], self.__dict__["way"] = passing, (receives, sends)

    def forward(self, hidden: Tensor, *_given: Any, **_named: Any) -> Tensor:
        """What comes out of the block."""
        passing, (receives, sends) = self.__dict__["passing"], self.__dict__["way"]
        if sends:
            passing.sent = hidden
        return passing.received if receives else hidden


@dataclass(frozen=True)
class Cut:
    """A rank's stages of a model."""

    held: nn.Module
    """All that the rank has, and what is tied to it, under the whole model's names; it cannot be run."""
    stages: tuple[tuple[nn.Module, Passing], ...]
    """Models that can, each for one stage; they share their parameters with `held`."""
    beside: tuple[nn.Module, ...]
    """Modules of `held` whose parameters are tied to a stage's, and which it does not run."""
    is_tied: bool
    """Whether a stage of any rank shares a parameter with another stage."""


def cut(model: nn.Module, found: Layout, parts: Sequence[range], own: Sequence[int]) -> Cut:
    """Cut a model; the given one is of no use afterwards.

    Args:
        model: whole.
        found: its layout.
        parts: which blocks each stage has.
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
    """Whether a module of another rank has a parameter that a module of this rank has, too."""
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
    """The module with others in the places of some below it; what has none of those below it is shared, not copied."""
    if module in absent:
        return absent[module]
    children = {name: _with(child, absent) if child else None for name, child in module._modules.items()}
    if all(child is module._modules[name] for name, child in children.items()):
        return module
    shell = copy.copy(module)
    shell._modules = children
    return shell


def with_tied_alone(held: nn.Module, beside: Sequence[nn.Module], run: Sequence[nn.Module]) -> nn.Module:
    """What a rank holds, once it has its weights: of what it does not run only the parameters that are tied to its own.

    Args:
        held: as in Cut.
        beside: as in Cut.
        run: the rank's stages.
    """
    own = {id(parameter) for module in run for parameter in module.parameters()}
    return _with(held, {module: _alone(module, own) for module in beside})


def _alone(module: nn.Module, kept: set[int]) -> nn.Module:
    """A module without any code, of the same structure, with some of the parameters."""
    alone = nn.Module()
    for name, parameter in module._parameters.items():
        if id(parameter) in kept:
            alone.register_parameter(name, parameter)
    for name, child in module.named_children():
        if any(id(parameter) in kept for parameter in child.parameters()):
            alone.add_module(name, _alone(child, kept))
    return alone


class Stage(nn.Module):
    """What a rank runs of a stage: from what the stage before has sent to what the next one gets.

    Args:
        model: one of Cut.stages.
        passing: what passes through it.
        beside: modules that it does not run, whose parameters are tied to its own.
        sends: the type of what is sent on.
        is_last: whether it has the answer.
    """

    def __init__(
        self, model: nn.Module, passing: Passing, beside: Sequence[nn.Module], sends: torch.dtype, *, is_last: bool
    ) -> None:
        super().__init__()
        self.model = model
        # Not a ModuleList, in which repeated blocks are looked for: a tied weight may outweigh all of a stage's blocks.
        self.beside = nn.ModuleDict({str(number): module for number, module in enumerate(beside)})
        self.is_last, self.sends = is_last, sends
        self.parts: Sequence[Asked] = ()
        self._passing = passing

    def forward(self, *received: Tensor, part: int) -> Tensor:
        """What is to be sent on, (B, ...); of the last stage the answer.

        Args:
            received: of the stage before; nothing, if there is none.
            part: which micro-batch it is, of those in `parts`.
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
