"""A model's buffers, running means above all, put back after passes that count nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


class Buffers:
    """A model's buffers as they are now, to be put back later."""

    def __init__(self, *models: nn.Module) -> None:
        self._saved = [
            (module._buffers, name, buffer, buffer.clone())
            for model in models
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def restore(self) -> None:
        """Put the buffers and their values back."""
        for buffers, name, buffer, value in self._saved:
            buffers[name] = buffer  # a module may have assigned another tensor
            # `data`: autograd may have saved the buffer for the backward pass of an earlier part, which does not read
            # it in training, but would refuse a tensor that was changed in place.
            buffer.data.copy_(value)


@contextmanager
def unchanged_buffers(*models: nn.Module) -> Iterator[None]:
    """Within it, whatever models compute leaves their buffers as they are."""
    buffers = Buffers(*models)
    try:
        yield
    finally:
        buffers.restore()
