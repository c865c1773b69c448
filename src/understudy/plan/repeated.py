"""The increment for one more block of a model, from a trace with a few blocks.

Blocks are alike: each further one computes, sends and holds at the peak as much as a traced one. The increment is taken
from a block that is not running at the peak: a running block also holds memory that only one block at a time does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from understudy.models.parts import local_tensor
from understudy.plan.ledger import Block, Kind, Ledger, Peak


@dataclass(frozen=True)
class BlockIncrement:
    """The increment for one more block on a rank."""

    kinds: Counter[Kind] = field(default_factory=Counter)
    """Bytes at the peak."""
    resident: int = 0
    """Bytes between steps."""
    state: int = 0
    """Bytes of weights and optimiser."""
    flops: int = 0
    traffic: Counter[tuple[str, tuple[int, ...]]] = field(default_factory=Counter)

    def __add__(self, addend: "BlockIncrement") -> "BlockIncrement":
        return BlockIncrement(
            self.kinds + addend.kinds,
            self.resident + addend.resident,
            self.state + addend.state,
            self.flops + addend.flops,
            self.traffic + addend.traffic,
        )


class Repeated:
    """The blocks of a list, with hooks that report the running block to a ledger.

    Args:
        ledger: the ledger.
        blocks: in order, already spread over ranks; at least three if they are trained.
    """

    def __init__(self, ledger: Ledger, blocks: Sequence[nn.Module]) -> None:
        self._ledger, self._blocks = ledger, blocks
        self._list = id(self)
        for number, block in enumerate(blocks):
            _watch(block, (self._list, number), ledger)

    def assign(self, tensors: Mapping[Any, Mapping[str, Any]]) -> None:
        """Assign gradients, and other tensors of parameters, to their blocks."""
        for number, block in enumerate(self._blocks):
            self._ledger.assign((self._list, number), _tensors_of(block, tensors))
            self._ledger.assign((self._list, number), (w.grad for w in block.parameters() if w.grad is not None))

    def increment(
        self, peak: Peak, between: Peak, state: Mapping[Any, Mapping[str, Any]] | None, times: float
    ) -> BlockIncrement:
        """The increment for one more block.

        Args:
            peak: the peak of memory.
            between: the memory between steps.
            state: the optimiser's; None if blocks are not trained.
            times: ratio of a step's computation and traffic to the traced part.
        """
        work = self._ledger.work[self._list, 1]
        weights = [] if state is None else [*self._blocks[1].parameters(), *_tensors_of(self._blocks[1], state)]
        return BlockIncrement(
            self._waiting(peak),
            between.blocks.get((self._list, 1), Counter[Kind]()).total(),
            sum(local_tensor(tensor).nbytes for tensor in weights),
            round(work.flops * times),
            Counter({kind: round(size * times) for kind, size in work.traffic.items()}),
        )

    def _waiting(self, peak: Peak) -> Counter[Kind]:
        """The memory of a block that is not running at the peak.

        One block at a time may also hold tensors that are gathered ahead or still being sent: the minimum has none.
        """
        last, running = len(self._blocks) - 1, None
        if peak.within and peak.within[0] == self._list:
            running = peak.within[1]
        if running is None:
            numbers = range(1, last)
        elif running > last / 2:
            numbers = range(running)
        else:
            numbers = range(running + 1, last + 1)
        waiting = [peak.blocks.get((self._list, number), Counter[Kind]()) for number in numbers]
        kinds = {kind for block_kinds in waiting for kind in block_kinds}
        return Counter({kind: min(block_kinds[kind] for block_kinds in waiting) for kind in kinds})


def _watch(block: nn.Module, name: Block, ledger: Ledger) -> None:
    def enter(*_: Any) -> None:
        ledger.block = name

    def leave(*_: Any) -> None:
        ledger.block = None

    def reenter(_module: nn.Module, _args: Any, outputs: Any) -> None:
        for tensor in tree_leaves(outputs):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(enter)  # type: ignore[no-untyped-call]
                return

    ledger.block_of[block] = name
    ledger.assign(name, block.parameters())
    # Before fully_shard's hooks, so that its traffic for a block is the block's.
    block.register_forward_pre_hook(enter, prepend=True)
    block.register_forward_hook(reenter, prepend=True)
    block.register_forward_hook(leave)


def _tensors_of(block: nn.Module, tensors: Mapping[Any, Mapping[str, Any]]) -> list[Tensor]:
    values = [value for weight in block.parameters() for value in tensors.get(weight, {}).values()]
    return [value for value in values if isinstance(value, Tensor)]
