"""A vector for each example from a hidden state, for objectives that compare whole examples.

It is the mean over an image's positions or pixels, over a labelled text's tokens without padding, or over the positions
of a sequence that have a target.
"""

from torch import Size, Tensor

from understudy.errors import InputError
from understudy.models.outputs import OutputShapes
from understudy.objectives.batch import Batch
from understudy.objectives.fused import full_precision


def embeddings(state: Tensor, mask: Tensor | None, batch: Batch) -> Tensor:
    """The mean of each example's positions, (B, width) in fp32 or wider; 0 for an example without any.

    Args:
        state: a hidden state, (B, L, width) or (B, width, height, width of the image).
        mask: (B, L), 0 where a position is padding; None if there is none.
        batch: the examples.
    """
    states = by_position(state)
    weights = counted_positions(states, mask, batch).to(full_precision(state.dtype))
    total = (states.to(weights.dtype) * weights[..., None]).sum(1)
    return total / weights.sum(1, keepdim=True).clamp(min=1)


def by_position(state: Tensor) -> Tensor:
    """A hidden state as (B, positions, width); the positions of a convolution's output are its pixels."""
    return state.flatten(2).transpose(1, 2) if state.ndim == 4 else state


def counted_positions(states: Tensor, mask: Tensor | None, batch: Batch) -> Tensor:
    """Whether each position counts, boolean (B, L): those with a target, or of an example with a label all but padding.

    Args:
        states: (B, L, width).
        mask: (B, L), 0 where a position is padding; None if there is none.
        batch: the examples.
    """
    if batch.labels.ndim == 2:
        return batch.has_target
    counted = batch.has_target[:, None].expand(states.shape[:2])
    return counted if mask is None else counted & mask.bool()


def targets_by_example(batch: Batch) -> Tensor:
    """The number of targets of each example, (B,)."""
    return batch.has_target.flatten(1).sum(1) if batch.labels.ndim > 1 else batch.has_target.long()


def width_of(model: OutputShapes, layer: int, role: str, path: str) -> int:
    """The width of a layer's embeddings.

    Args:
        model: the shapes of a model's outputs.
        layer: the index of the hidden state; -1 for the last.
        role: the model's, for errors.
        path: of the objective in the recipe, for errors.

    Raises:
        InputError: the hidden state has no positions to average.
    """
    shape: Size = model.hidden_states[layer]
    if len(shape) not in (2, 3):
        raise InputError(
            f"{path}: a hidden state of the {role} has the shape {tuple(shape)}, and neither (positions, width) nor "
            "(channels, height, width); take a transformer or a convolutional network, or remove this objective"
        )
    return shape[1] if len(shape) == 2 else shape[0]
