"""What a model says about a batch: its logits, and what an objective asks for besides."""

from typing import Literal, NamedTuple

from torch import Tensor

Extra = Literal["hidden_states", "attentions"]


class Outputs(NamedTuple):
    """A named tuple, since FSDP finds the tensors of an output by torch's pytree, which knows no dataclasses."""

    logits: Tensor
    """(B, classes) or (B, L, vocabulary)."""
    hidden_states: tuple[Tensor, ...] = ()
    """(B, L, width) by layer, the embedding first; only where they were asked for."""
    attentions: tuple[Tensor, ...] = ()
    """(B, heads, L, L) by layer; only where they were asked for."""
