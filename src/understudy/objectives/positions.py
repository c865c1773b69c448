"""The mean of an example's values over its positions, for objectives that compare hidden states."""

from torch import Tensor


def example_means(values: Tensor, mask: Tensor | None) -> Tensor:
    """The mean over each example's positions and further dimensions, (B,); 0 for an example that is all padding.

    Args:
        values: (B, L) or (B, L, ...).
        mask: (B, L), 0 where a position is padding; None if there is none.
    """
    if mask is None:
        return values.flatten(1).mean(-1)
    by_position = values.flatten(2).mean(-1) if values.ndim > 2 else values
    return by_position.where(mask.bool(), 0).sum(-1) / mask.sum(-1).clamp(min=1)
