"""A loss that is computed in many pieces, of which three are traced: those between the first and the last are alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from torch import Tensor

from understudy.distill import fused
from understudy.models.outputs import States
from understudy.plan.ledger import Count, Ledger

FEW = 3


@contextmanager
def few_pieces(ledger: Ledger) -> Iterator[None]:
    """Within it, pieces are left out, and what they would compute and send is entered as if they were not.

    Of the rows of a piece, which a loss goes through without products, the first are traced alone: what is held beside
    them is the same for all.

    Args:
        ledger: enters what happens.
    """
    every, every_row = States.pieces, fused.row_blocks

    def few(states: States) -> Iterator[slice]:
        pieces = list(every(states))
        left_out = max(0, len(pieces) - FEW)
        seen = list[Count]()
        for piece in [*pieces[:2], pieces[-1]] if left_out else pieces:
            seen.append(ledger.count)
            if len(seen) == 2:  # from one piece to the next
                ledger.repeat(seen[0], left_out)
            yield piece

    def first_rows(logits: Tensor) -> Iterator[slice]:
        return iter(list(every_row(logits))[:1])

    with patch.object(States, "pieces", few), patch.object(fused, "row_blocks", first_rows):
        yield
