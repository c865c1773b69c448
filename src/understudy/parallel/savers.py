"""What a model's blocks do to keep less memory and to take less time, in the one order in which these go together."""

from typing import Literal, NamedTuple

import torch
from torch import nn

from understudy.parallel.activation_checkpointing import checkpoint_activations
from understudy.parallel.activation_offload import offload_activations
from understudy.parallel.compilation import compile_blocks, is_worth_compiling
from understudy.recipe import Recompute, Train


class Savers(NamedTuple):
    """Of a model that learns; one that is only asked has none."""

    recompute: Recompute = "none"
    compiled: bool | Literal["auto"] = False
    offloaded: bool = False

    @classmethod
    def of(cls, train: Train) -> "Savers":
        """The recipe's."""
        compiled = False if train.compile == "auto" and train.strategy == "dp" else train.compile
        return cls(train.activation_checkpointing, compiled, "activations" in train.offload)

    def apply(self, model: nn.Module, where: str, device: torch.device, *, splits: bool) -> None:
        """Change a model's blocks in place, before it is sharded.

        Args:
            model: whose layers are split already.
            where: the recipe's path of the training, for errors.
            device: that computes.
            splits: whether layers, sequences or stages are split.

        Raises:
            InputError: the model has no repeated blocks, or this machine cannot compile.
        """
        if self.recompute != "none":
            checkpoint_activations(model, self.recompute, where)
        if self.compiled is True or (self.compiled and not splits and is_worth_compiling(model, device)):
            compile_blocks(model, where)
        if self.offloaded:  # around what is compiled: hooks in it would be compiled, too
            offload_activations(model, where)


NONE = Savers()
