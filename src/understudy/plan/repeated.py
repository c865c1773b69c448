"""What one more block of a model would add, seen in a trace that has a few of them.

Blocks are alike: what one of them computes, sends and holds at the peak, each further one would as well. It is looked
for in a block that is not at work then, because one that is holds what only one at a time does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from understudy.models.parts import kept
from understudy.plan.ledger import Block, Kind, Ledger, Peak


@dataclass(frozen=True)
class Further:
    """What one more block adds to a rank."""

    kinds: Counter[Kind] = field(default_factory=Counter)
    """Bytes at the peak."""
    kept: int = 0
    """Bytes between steps."""
    state: int = 0
    """Bytes of weights and optimiser."""
    flops: int = 0
    traffic: Counter[tuple[str, tuple[int, ...]]] = field(default_factory=Counter)

    def __add__(self, other: "Further") -> "Further":
        return Further(
            self.kinds + other.kinds,
            self.kept + other.kept,
            self.state + other.state,
            self.flops + other.flops,
            self.traffic + other.traffic,
        )


class Repeated:
    """The blocks of a list, of which a ledger is told when each is at work.

    Args:
        ledger: to be told.
        blocks: in their order, already spread over ranks; those that are trained are three at least.
    """

    def __init__(self, ledger: Ledger, blocks: Sequence[nn.Module]) -> None:
        self._ledger, self._blocks = ledger, blocks
        self._list = id(self)
        for number, block in enumerate(blocks):
            _watch(block, (self._list, number), ledger)

    def own(self, made: Mapping[Any, Mapping[str, Any]]) -> None:
        """Say that gradients, and what else was made for parameters, are their block's."""
        for number, block in enumerate(self._blocks):
            self._ledger.own((self._list, number), _made(block, made))
            self._ledger.own((self._list, number), (w.grad for w in block.parameters() if w.grad is not None))

    def further(
        self, peak: Peak, between: Peak, state: Mapping[Any, Mapping[str, Any]] | None, times: float
    ) -> Further:
        """What one more block adds.

        Args:
            peak: the most that was held.
            between: what is held between steps.
            state: the optimiser's; None if blocks are not trained.
            times: as much is computed and sent as was traced.
        """
        work = self._ledger.work[self._list, 1]
        weights = [] if state is None else [*self._blocks[1].parameters(), *_made(self._blocks[1], state)]
        return Further(
            self._waiting(peak),
            between.blocks.get((self._list, 1), Counter[Kind]()).total(),
            sum(kept(tensor).nbytes for tensor in weights),
            round(work.flops * times),
            Counter({which: round(size * times) for which, size in work.traffic.items()}),
        )

    def _waiting(self, peak: Peak) -> Counter[Kind]:
        """What a block holds that is not at work. Beside it there may be what one block at a time is sent beforehand,
        or sends afterwards: the one with least has nothing of it.
        """
        last, at = len(self._blocks) - 1, None
        if peak.within and peak.within[0] == self._list:
            at = peak.within[1]
        if at is None:
            among = range(1, last)
        elif at > last / 2:
            among = range(at)
        else:
            among = range(at + 1, last + 1)
        waiting = [peak.blocks.get((self._list, number), Counter[Kind]()) for number in among]
        kinds = {kind for each in waiting for kind in each}
        return Counter({kind: min(each[kind] for each in waiting) for kind in kinds})


def _watch(block: nn.Module, name: Block, ledger: Ledger) -> None:
    def work(*_: Any) -> None:
        ledger.block = name

    def rest(*_: Any) -> None:
        ledger.block = None

    def work_again(_module: nn.Module, _given: Any, said: Any) -> None:
        for tensor in tree_leaves(said):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(work)  # type: ignore[no-untyped-call]
                return

    ledger.places[block] = name
    ledger.own(name, block.parameters())
    # Before fully_shard's own: what it sends for a block is then the block's.
    block.register_forward_pre_hook(work, prepend=True)
    block.register_forward_hook(work_again, prepend=True)
    block.register_forward_hook(rest)


def _made(block: nn.Module, made: Mapping[Any, Mapping[str, Any]]) -> list[Tensor]:
    found = [value for weight in block.parameters() for value in made.get(weight, {}).values()]
    return [value for value in found if isinstance(value, Tensor)]
