"""What a model says about a batch: its logits, and what an objective asks for besides; or what its logits come from."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

HELD = 2**25
"""Logits that may be held at a time, 128 MiB of them in fp32, where a loss needs those of one position alone."""
BESIDE_LARGE_HEAD = 4
"""Times as many are held beside a head with as many weights."""

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
    linear: nn.Linear | None = None
    """The head, where it is this layer and nothing besides (of whose outputs the first `vocabulary` are logits)."""

    def pieces(self) -> Iterator[slice]:
        """Parts of all positions, B x L of them in one row, whose logits may be held at a time; as long as each other.

        Each piece reads and writes the gradient of the whole head once, so beside a larger head more logits are held:
        as many as the head has weights, within limits. A device that trains a head has room for 16 bytes a weight, and
        a piece takes 6 a logit in half precision. What is free at the moment does not count: the sums depend on where
        pieces end, and a training that resumes on another machine has to get the same bits.
        """
        positions = self.states.shape[:-1].numel()
        weights = self.states.shape[-1] * self.vocabulary if self.parameters else 0
        held = max(HELD, min(weights, BESIDE_LARGE_HEAD * HELD))
        count = -(-positions // max(1, held // self.vocabulary))
        width = -(-positions // max(1, count))
        return (slice(first, min(first + width, positions)) for first in range(0, positions, max(1, width)))

    def logits(self, piece: slice) -> Tensor:
        """(n, vocabulary), of some positions."""
        return self.head(self.states.flatten(0, -2)[piece])


def plain_linear(head: nn.Module) -> nn.Linear | None:
    """The head itself, where it is a linear layer that nobody changes: without hooks, whole, and not split by tp."""
    if type(head) is not nn.Linear or "forward" in vars(head) or isinstance(head.weight, DTensor):
        return None
    hooks = (head._forward_hooks, head._forward_pre_hooks, head._backward_hooks, head._backward_pre_hooks)
    return None if any(hooks) else head
