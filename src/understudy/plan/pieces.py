"""Tracing of losses in many pieces: three are traced, since those between the first and the last are alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from torch import Tensor

from understudy.models.outputs import States
from understudy.objectives import fused
from understudy.plan.ledger import Count, Ledger

FEW = 3


@contextmanager
def few_pieces(ledger: Ledger) -> Iterator[None]:
    """Within the context, pieces are left out, but their computation and traffic are counted.

    A loss goes through a piece in blocks of rows, without matrix products. Only the first block is traced, since all
    hold the same memory.

    Args:
        ledger: of the trace.
    """
    all_pieces, all_rows = States.pieces, fused.row_blocks

    def three_pieces(states: States) -> Iterator[slice]:
        pieces = list(all_pieces(states))
        left_out = max(0, len(pieces) - FEW)
        counts = list[Count]()
        for piece in [*pieces[:2], pieces[-1]] if left_out else pieces:
            counts.append(ledger.count)
            if len(counts) == 2:  # from one piece to the next
                ledger.repeat(counts[0], left_out)
            yield piece

    def first_rows(logits: Tensor) -> Iterator[slice]:
        return iter(list(all_rows(logits))[:1])

    with patch.object(States, "pieces", three_pieces), patch.object(fused, "row_blocks", first_rows):
        yield
