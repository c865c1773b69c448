"""The teacher beside a student in training: frozen, in evaluation mode, without gradients."""

import torch
from torch import Tensor, nn

from understudy.models.outputs import Extra, Outputs, States
from understudy.parallel.apply import reshard


class Teacher:
    """A model that is asked and never trained.

    Args:
        model: already on its device, and sharded if it is to be.
        extras: what the objectives need of it besides its logits.
    """

    def __init__(self, model: nn.Module, extras: frozenset[Extra]) -> None:
        self._model = model.requires_grad_(requires_grad=False).eval()
        self._extras = extras

    def __call__(self, inputs: Tensor, **placed: Tensor) -> Outputs:
        """What it says about a batch, as tensors that a loss with gradients may take.

        Args:
            inputs: of the batch.
            placed: `positions`, where the inputs are a part of sequences.
        """
        with torch.inference_mode():
            said: Outputs = self._model(inputs, self._extras, **placed)
        return Outputs(
            said.logits.clone(),
            tuple(state.clone() for state in said.hidden_states),
            tuple(attention.clone() for attention in said.attentions),
        )

    def rest(self) -> None:
        """Give up what questions have gathered from other ranks."""
        reshard(self._model)

    def states(self, inputs: Tensor, **placed: Tensor) -> States:
        """What it knows of a batch before its last layer, and that layer, without gradients."""
        with torch.inference_mode():
            said: States = self._model(inputs, read=lambda known: known, **placed)
        return said._replace(states=said.states.clone())
