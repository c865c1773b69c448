"""Memory savers and compilation of a model's blocks, in the one order in which they combine."""

from typing import Literal, NamedTuple

import torch
from torch import nn

from understudy.parallel.activation_checkpointing import checkpoint_activations
from understudy.parallel.activation_offload import offload_activations
from understudy.parallel.compilation import compile_blocks, is_worth_compiling
from understudy.recipe import Recompute, Train


class Savers(NamedTuple):
    """Settings of a model's blocks; an inference-only model is compiled at most."""

    recompute: Recompute = "none"
    compiled: bool | Literal["auto"] = False
    offloaded: bool = False

    @classmethod
    def of(cls, train: Train) -> "Savers":
        """The recipe's settings."""
        compiled = False if train.compile == "auto" and train.strategy == "dp" else train.compile
        return cls(train.activation_checkpointing, compiled, "activations" in train.offload)

    def apply(self, model: nn.Module, path: str, device: torch.device, *, splits: bool) -> None:
        """Change a model's blocks in place, before it is sharded.

        Args:
            model: its layers are already split.
            path: the training's path in the recipe, for errors.
            device: the device that computes.
            splits: whether there are split layers or sequences, or stages.

        Raises:
            InputError: the model has no repeated blocks, or this machine cannot compile.
        """
        if self.recompute != "none":
            checkpoint_activations(model, self.recompute, path)
        if self.compiled is True or (self.compiled and not splits and is_worth_compiling(model, device)):
            compile_blocks(model, path)
        if self.offloaded:  # outside the compiled function, or its hooks would be compiled too
            offload_activations(model, path)


NONE = Savers()
