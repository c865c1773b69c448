"""What a model says about a batch: its logits, and what an objective asks for besides; or what its logits come from."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from torch import Tensor, nn

HELD = 2**25
"""Logits that are held at a time, 128 MiB of them in fp32, where a loss needs those of one position alone."""

Extra = Literal["hidden_states", "attentions"]


class Outputs(NamedTuple):
    """A named tuple, since FSDP finds the tensors of an output by torch's pytree, which knows no dataclasses."""

    logits: Tensor
    """(B, classes) or (B, L, vocabulary)."""
    hidden_states: tuple[Tensor, ...] = ()
    """(B, L, width) by layer, the embedding first; only where they were asked for."""
    attentions: tuple[Tensor, ...] = ()
    """(B, heads, L, L) by layer; only where they were asked for."""


class States(NamedTuple):
    """What a model knows before its last layer, and that layer. The image of a classifier is a position, too."""

    states: Tensor
    """(B, L, width), or (B, width)."""
    head: Callable[[Tensor], Tensor]
    """From (n, width) to logits (n, vocabulary)."""
    parameters: tuple[nn.Parameter, ...]
    """The head's own."""
    vocabulary: int

    def pieces(self) -> Iterator[slice]:
        """Parts of all positions, B x L of them in one row, whose logits may be held at a time."""
        positions = self.states.shape[:-1].numel()
        width = max(1, HELD // self.vocabulary)
        return (slice(first, min(first + width, positions)) for first in range(0, positions, width))

    def logits(self, piece: slice) -> Tensor:
        """(n, vocabulary), of some positions."""
        return self.head(self.states.flatten(0, -2)[piece])
