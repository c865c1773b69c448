"""Activation checkpointing: recompute a block's activations in the backward pass instead of saving them.

Chen et al. 2016. `full` saves only a block's inputs. `selective` also saves attention and every second matrix
multiplication, which cost most to recompute (as torchtitan does).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from understudy.models.buffers import unchanged_buffers
from understudy.parallel.blocks import needed_blocks

ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
}
PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten._scaled_mm.default}


def checkpoint_activations(model: nn.Module, kind: Literal["full", "selective"], path: str) -> None:
    """Enable activation checkpointing for a model's repeated blocks, in place.

    Args:
        model: not sharded yet.
        kind: the activations to save besides a block's inputs.
        path: the training's path in the recipe, for errors.

    Raises:
        InputError: the model has no repeated blocks.
    """
    model_blocks = needed_blocks(model, f"{path}.activation_checkpointing", "set it to none")
    options: dict[str, Any] = {"use_reentrant": False}
    contexts = _no_contexts
    if kind == "selective":
        contexts = options["context_fn"] = _selective_contexts
        options["respect_saved_tensors_hooks"] = True
    for block in model_blocks:
        # Recomputation would update running means a second time. A compiler leaves such updates out of recomputation by
        # itself, and accepts no context_fn but that of `selective`.
        eager = {**options, "context_fn": partial(_contexts, block, contexts)} if list(block.buffers()) else options
        block.forward = partial(_recomputed, block.forward, eager, options)


def _recomputed(
    forward: Callable[..., Any], eager: dict[str, Any], compiled: dict[str, Any], *args: Any, **kwargs: Any
) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    options = compiled if torch.compiler.is_compiling() else eager
    return checkpoint(forward, *args, **options, **kwargs)


Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
"""Contexts of a block's forward pass and of its recomputation."""


def _no_contexts() -> Contexts:
    return nullcontext(), nullcontext()


def _selective_contexts() -> Contexts:
    contexts: Contexts = create_selective_checkpoint_contexts(_Policy())  # type: ignore[no-untyped-call]
    return contexts


def _contexts(block: nn.Module, make: Callable[[], Contexts]) -> Contexts:
    forward, recomputation = make()
    return forward, _recomputing(block, recomputation)


@contextmanager
def _recomputing(block: nn.Module, context: AbstractContextManager[Any]) -> Iterator[None]:
    with unchanged_buffers(block), context:
        yield


class _Policy:
    """Decides which operations of a block save their outputs."""

    def __init__(self) -> None:
        self._products = {True: 0, False: 0}

    def __call__(self, context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        del args, kwargs
        if operation in ATTENTION:
            return CheckpointPolicy.MUST_SAVE
        if operation in PRODUCTS:  # counted separately in forward pass and recomputation, so that both decide alike
            recomputes = bool(context.is_recompute)
            self._products[recomputes] += 1
            if self._products[recomputes] % 2:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE
