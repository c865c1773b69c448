"""Saving and restoring of a model's buffers, such as running means, around passes that must not change them."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


class Buffers:
    """A copy of models' current buffers, to restore them later."""

    def __init__(self, *models: nn.Module) -> None:
        self._saved = [
            (module._buffers, name, buffer, buffer.clone())
            for model in models
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def restore(self) -> None:
        """Restore the buffers and their values."""
        for buffers, name, buffer, value in self._saved:
            buffers[name] = buffer  # a module may have assigned another tensor
            # Through `data`: autograd may have saved the buffer for the backward pass of an earlier part. That does not
            # read it in training, but would raise an error for a tensor that was changed in place.
            buffer.data.copy_(value)


@contextmanager
def unchanged_buffers(*models: nn.Module) -> Iterator[None]:
    """Restore models' buffers at the end of the context."""
    buffers = Buffers(*models)
    try:
        yield
    finally:
        buffers.restore()
