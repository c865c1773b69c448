"""The teacher of a student in training: frozen, in evaluation mode, without gradients."""

import torch
from torch import Tensor, nn

from understudy.models.outputs import Outputs, States
from understudy.parallel.apply import reshard
from understudy.recipe.objectives import Extra


class Teacher:
    """A model for inference only.

    Args:
        model: on its device, and sharded if required.
        extras: outputs that the objectives need besides the logits.
    """

    def __init__(self, model: nn.Module, extras: frozenset[Extra]) -> None:
        self._model = model.requires_grad_(requires_grad=False).eval()
        self._extras = extras

    def __call__(self, inputs: Tensor, **placed: Tensor) -> Outputs:
        """The outputs on a batch, as tensors that may be used in a loss with gradients.

        Args:
            inputs: the batch's inputs.
            placed: `positions` and `mask`, where the inputs are parts of sequences or hold several documents.
        """
        with torch.inference_mode():
            said: Outputs = self._model(inputs, self._extras, **placed)
        return Outputs(
            said.logits.clone(),
            tuple(state.clone() for state in said.hidden_states),
            tuple(attention.clone() for attention in said.attentions),
        )

    def rest(self) -> None:
        """Free all-gathered parameters."""
        reshard(self._model)

    def states(self, inputs: Tensor, **placed: Tensor) -> States:
        """The last layer and its inputs on a batch, without gradients."""
        with torch.inference_mode():
            said: States = self._model(inputs, read=lambda known: known, **placed)
        return said._replace(states=said.states.clone())
