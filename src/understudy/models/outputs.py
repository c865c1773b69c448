"""Model outputs on a batch: logits and the extras that objectives need, or the last hidden states and the head."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from torch import Size, Tensor, nn
from torch.distributed.tensor import DTensor

LOGITS_AT_A_TIME = 2**25
"""Maximum number of logits in memory at a time, 128 MiB in fp32, for losses that are sums over single positions."""
LARGE_HEAD_FACTOR = 4
"""Largest factor by which a head with many weights raises LOGITS_AT_A_TIME."""


class Outputs(NamedTuple):
    """A model's outputs; a named tuple, since FSDP finds tensors through torch's pytree, which ignores dataclasses."""

    logits: Tensor
    """(B, classes) or (B, L, vocabulary)."""
    hidden_states: tuple[Tensor, ...] = ()
    """(B, L, width) by layer, the embedding first; only if requested."""
    attentions: tuple[Tensor, ...] = ()
    """(B, heads, L, L) by layer; only if requested."""
    mask: Tensor | None = None
    """(B, L), 1 for tokens and 0 for padding, beside hidden states of padded texts; None if no position is padding."""


class OutputShapes(NamedTuple):
    """Shapes of a model's outputs on one example, without the batch's dimension."""

    hidden_states: tuple[Size, ...] = ()
    """By layer, the embedding first; only if requested."""


class States(NamedTuple):
    """A model's last layer and its inputs. An image of a classifier counts as one position."""

    states: Tensor
    """(B, L, width), or (B, width)."""
    head: Callable[[Tensor], Tensor]
    """From (n, width) to logits (n, vocabulary)."""
    parameters: tuple[nn.Parameter, ...]
    """The head's parameters."""
    vocabulary: int
    linear: nn.Linear | None = None
    """The layer that is the whole head, if there is one; its first `vocabulary` outputs are the logits."""

    def pieces(self) -> Iterator[slice]:
        """Pieces of equal length of the B x L positions, flattened, whose logits may be in memory at a time.

        Each piece reads and writes the gradient of the whole head once, so a larger head gets larger pieces: as many
        logits as the head has weights, within limits. A device that trains a head has memory for 16 bytes a weight,
        and a piece takes 6 bytes a logit in half precision. Free memory is not considered: sums depend on the piece
        boundaries, and a training that resumes on another machine must compute the same bits.
        """
        positions = self.states.shape[:-1].numel()
        weights = self.states.shape[-1] * self.vocabulary if self.parameters else 0
        limit = max(LOGITS_AT_A_TIME, min(weights, LARGE_HEAD_FACTOR * LOGITS_AT_A_TIME))
        count = -(-positions // max(1, limit // self.vocabulary))
        width = -(-positions // max(1, count))
        return (slice(first, min(first + width, positions)) for first in range(0, positions, max(1, width)))

    def logits(self, piece: slice) -> Tensor:
        """Logits (n, vocabulary) of a piece."""
        return self.head(self.states.flatten(0, -2)[piece])


def plain_linear(head: nn.Module) -> nn.Linear | None:
    """The head, if it is an unmodified linear layer: no hooks, no replaced forward, no DTensor (tp) weight."""
    if type(head) is not nn.Linear or "forward" in vars(head) or isinstance(head.weight, DTensor):
        return None
    hooks = (head._forward_hooks, head._forward_pre_hooks, head._backward_hooks, head._backward_pre_hooks)
    return None if any(hooks) else head
