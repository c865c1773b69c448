"""The teacher of a student in training: frozen, in evaluation mode, without gradients."""

import torch
from torch import nn

from understudy.models.outputs import Outputs, States
from understudy.objectives.batch import Batch
from understudy.parallel.apply import reshard
from understudy.recipe.objectives import Extra


class ModelTeacher:
    """A model for inference only, as a Teacher.

    Args:
        model: on its device, and sharded if required.
        extras: outputs that the objectives need besides the logits.
    """

    def __init__(self, model: nn.Module, extras: frozenset[Extra]) -> None:
        self._model = model.requires_grad_(requires_grad=False).eval()
        self._extras = extras

    def outputs(self, batch: Batch) -> Outputs:
        """The outputs on a batch, as tensors that may be used in a loss with gradients."""
        with torch.inference_mode():
            computed: Outputs = self._model(batch.inputs, self._extras, **batch.placed)
        return Outputs(
            computed.logits.clone(),
            tuple(state.clone() for state in computed.hidden_states),
            tuple(attention.clone() for attention in computed.attentions),
        )

    def states(self, batch: Batch) -> States:
        """The last layer and its inputs on a batch, without gradients."""
        with torch.inference_mode():
            computed: States = self._model(batch.inputs, reduce=lambda states: states, **batch.placed)
        return computed._replace(states=computed.states.clone())

    def reshard(self) -> None:
        """Free all-gathered parameters."""
        reshard(self._model)
