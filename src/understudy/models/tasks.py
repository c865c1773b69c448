"""A bare network with its task's inputs and outputs around it.

Every model here maps a batch of the task's inputs to Outputs: images as uint8 (B, C, S, S) to logits (B, classes),
tokens as int64 (B, L) to logits (B, L, vocabulary).
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from understudy.models.facts import Facts
from understudy.models.outputs import Extra, Outputs, States, plain_linear

NOTHING: frozenset[Extra] = frozenset()


class ImageModel(nn.Module):
    """An image classifier that takes pixels as they are stored and normalises them itself."""

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.net = net
        self.kind = torch.float32
        """In which the network computes."""
        self.register_buffer("mean", 255 * torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(
        self, inputs: Tensor, extras: frozenset[Extra] = NOTHING, read: Callable[[States], Any] | None = None
    ) -> Any:
        """Images, uint8 (B, C, S, S), to Outputs: logits (B, classes), and what else is asked for.

        Args:
            inputs: the images.
            extras: what is asked for.
            read: called with the logits, as States; its answer is returned.
        """
        pixels = ((inputs - self.mean) / self.std).to(self.kind)
        said = _outputs(self.net(pixels, **_asked(extras)), extras)
        return read(logits_alone(said.logits)) if read else said


class TextModel(nn.Module):
    """A causal language model. Pretrained ones may have more outputs than the tokenizer has tokens; those are cut."""

    def __init__(self, net: nn.Module, vocab_size: int) -> None:
        super().__init__()
        self.net = net
        self._vocab_size = vocab_size
        self._head_is_apart = False
        # transformers keeps keys and values of all positions, for generating, unless it is told not to.
        takes = inspect.signature(net.forward).parameters
        self._options = {"use_cache": False} if "use_cache" in takes else {}

    def forward(
        self,
        inputs: Tensor,
        extras: frozenset[Extra] = NOTHING,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        read: Callable[[States], Any] | None = None,
    ) -> Any:
        """Tokens, int64 (B, L), to Outputs: logits (B, L, vocabulary), and what else is asked for.

        Args:
            inputs: the tokens.
            extras: what is asked for.
            positions: int64 (B, L); where the tokens are a part of sequences, which. Where they begin anew another
                document does, which sees nothing of those before it.
            mask: boolean (B, 1, whole L, whole L); where the tokens are a part of several documents, what sees what.
            read: called with States, before there are logits; its answer is returned. It is called in here, where
                parameters that are in shards have been gathered.
        """
        given = {"position_ids": positions, "attention_mask": mask}
        placed = {name: tensor for name, tensor in given.items() if tensor is not None}
        if read:
            return read(self._states(inputs, placed))
        said = _outputs(self.net(inputs, **placed, **self._options, **_asked(extras)), extras)
        return said._replace(logits=said.logits[..., : self._vocab_size])

    def _states(self, inputs: Tensor, placed: dict[str, Tensor]) -> States:
        if self._head_is_apart:
            head = self.net.get_output_embeddings()  # type: ignore[operator]
            states = self.net.base_model(inputs, **placed, **self._options)[0]  # type: ignore[operator]
            cut = self._vocab_size
            parameters = (*head.parameters(),)
            return States(states, lambda some: head(some)[..., :cut], parameters, cut, plain_linear(head))
        said = _outputs(self.net(inputs, **placed, **self._options), NOTHING)
        return logits_alone(said.logits[..., : self._vocab_size])

    def find_head(self, ask: Callable[[Callable[[States], Tensor]], Tensor]) -> None:
        """Look whether the last layer, on what is below it, says what the network says; from then on logits may be had
        for some positions alone.

        Some networks do something to their logits afterwards, or before the last layer: they keep all of it.

        Args:
            ask: sends some tokens through the model, which has its weights, with a `read`.
        """
        self.take_head_apart()
        if not self._head_is_apart:
            return
        with torch.no_grad():
            parts = ask(lambda said: said.head(said.states))
            self._head_is_apart = False
            whole = ask(lambda said: said.states)
        self._head_is_apart = torch.equal(parts, whole)

    def take_head_apart(self) -> None:
        """Have logits for some positions alone, as far as the network names a last layer."""
        from transformers import PreTrainedModel

        self._head_is_apart = isinstance(self.net, PreTrainedModel) and self.net.get_output_embeddings() is not None


def logits_alone(logits: Tensor) -> States:
    """Of a model that says its logits, and nothing of what they come from."""
    return States(logits, lambda some: some, (), logits.shape[-1])


def _asked(extras: frozenset[Extra]) -> dict[str, bool]:
    """What transformers calls these outputs when they are asked for."""
    return {f"output_{extra}": True for extra in sorted(extras)}


def _outputs(output: Any, extras: frozenset[Extra]) -> Outputs:
    logits = output if isinstance(output, Tensor) else output.logits
    assert isinstance(logits, Tensor)
    found: dict[str, tuple[Tensor, ...]] = {extra: getattr(output, extra, None) or () for extra in extras}
    for extra, value in found.items():
        if not value:
            raise ValueError(f"the model was asked for {extra} and gives none")
    return Outputs(logits, found.get("hidden_states", ()), found.get("attentions", ()))


def task_model(net: nn.Module, description: Facts) -> nn.Module:
    """A bare network with the task's inputs and outputs around it."""
    if description["task"] == "causal-lm":
        return TextModel(net, description["vocab_size"])
    return ImageModel(net, description["mean"], description["std"])
