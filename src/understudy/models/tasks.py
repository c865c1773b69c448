"""Wrappers that give bare networks a task's inputs and outputs.

Every model maps a batch of the task's inputs to Outputs: images, uint8 (B, C, S, S), or other inputs of a classifier to
logits (B, classes), and tokens, int64 (B, L), to logits (B, L, vocabulary).
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from understudy.models.facts import Facts
from understudy.models.outputs import Outputs, States, plain_linear
from understudy.recipe.objectives import Extra
from understudy.recipe.tasks import load

NOTHING: frozenset[Extra] = frozenset()


class ImageModel(nn.Module):
    """An image classifier that takes pixels as stored and normalises them."""

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.net = net
        self.kind = torch.float32
        """The type that the network computes in."""
        self.register_buffer("mean", 255 * torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(
        self, inputs: Tensor, extras: frozenset[Extra] = NOTHING, reduce: Callable[[States], Any] | None = None
    ) -> Any:
        """Images, uint8 (B, C, S, S), to Outputs: logits (B, classes), and the requested extras.

        Args:
            inputs: the images.
            extras: further outputs to return.
            reduce: called with the logits, as States; its result is returned instead.
        """
        pixels = ((inputs - self.mean) / self.std).to(self.kind)
        outputs = _outputs(self.net(pixels, **_requests(extras)), extras)
        return reduce(logits_as_states(outputs.logits)) if reduce else outputs


class ClassifierModel(nn.Module):
    """A classifier of inputs that are several arguments of its network, such as tokens and their attention mask.

    Args:
        net: the network.
        arguments: from a batch of inputs to the network's first argument, and further ones by name. Those that the
            network does not have are left out.
    """

    def __init__(self, net: nn.Module, split_inputs: Callable[[Tensor], tuple[Tensor, Mapping[str, Tensor]]]) -> None:
        super().__init__()
        self.net = net
        self._split_inputs = split_inputs
        self._accepted = frozenset(inspect.signature(net.forward).parameters)

    def forward(
        self, inputs: Tensor, extras: frozenset[Extra] = NOTHING, reduce: Callable[[States], Any] | None = None
    ) -> Any:
        """A batch of inputs to Outputs: logits (B, classes), and the requested extras; `reduce` is as in ImageModel."""
        first, arguments = self._split_inputs(inputs)
        named = {name: value for name, value in arguments.items() if name in self._accepted}
        outputs = _outputs(self.net(first, **named, **_requests(extras)), extras)
        if extras:
            outputs = outputs._replace(mask=arguments.get("attention_mask"))
        return reduce(logits_as_states(outputs.logits)) if reduce else outputs


class TextModel(nn.Module):
    """A causal language model. Logits beyond the tokenizer's vocabulary, as of some pretrained models, are cut off."""

    def __init__(self, net: nn.Module, vocab_size: int) -> None:
        super().__init__()
        self.net = net
        self._vocab_size = vocab_size
        self._head_is_separate = False
        # By default transformers caches keys and values of all positions, for generation.
        parameters = inspect.signature(net.forward).parameters
        self._options = {"use_cache": False} if "use_cache" in parameters else {}

    def forward(
        self,
        inputs: Tensor,
        extras: frozenset[Extra] = NOTHING,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        reduce: Callable[[States], Any] | None = None,
        cache: Any = None,
    ) -> Any:
        """Tokens, int64 (B, L), to Outputs: logits (B, L, vocabulary), and the requested extras.

        Args:
            inputs: the tokens.
            extras: further outputs to return.
            positions: int64 (B, L), the tokens' positions, for parts of sequences and for several documents. Where they
                restart, a document begins, which does not attend to earlier ones.
            mask: boolean (B, 1, full L, full L), the attention mask, for parts of sequences of several documents. With
                a cache int64 (B, cached L + L), 1 for tokens and 0 for padding.
            reduce: called with States, before logits are computed; its result is returned instead. The call is in here,
                where sharded parameters are all-gathered.
            cache: from new_cache(), to which keys and values of the inputs are added, after those of earlier tokens.
        """
        optional = {"position_ids": positions, "attention_mask": mask, "past_key_values": cache}
        arguments = {name: tensor for name, tensor in optional.items() if tensor is not None}
        if reduce:
            return reduce(self._states(inputs, arguments))
        options = self._options if cache is None else {"use_cache": True}
        outputs = _outputs(self.net(inputs, **arguments, **options, **_requests(extras)), extras)
        if outputs.logits.shape[-1] == self._vocab_size:
            return outputs
        return outputs._replace(logits=_no_view(outputs.logits[..., : self._vocab_size]))

    def _states(self, inputs: Tensor, arguments: dict[str, Tensor]) -> States:
        if self._head_is_separate:
            head = self.net.get_output_embeddings()  # type: ignore[operator]
            states = self.net.base_model(inputs, **arguments, **self._options)[0]  # type: ignore[operator]
            vocab_size = self._vocab_size
            parameters = (*head.parameters(),)
            return States(states, lambda rows: head(rows)[..., :vocab_size], parameters, vocab_size, plain_linear(head))
        outputs = _outputs(self.net(inputs, **arguments, **self._options), NOTHING)
        return logits_as_states(outputs.logits[..., : self._vocab_size])

    def new_cache(self) -> Any:
        """An empty cache of keys and values; None if the network is not one of transformers that takes one."""
        from transformers import DynamicCache, PreTrainedModel

        parameters = inspect.signature(self.net.forward).parameters
        if not isinstance(self.net, PreTrainedModel) or "past_key_values" not in parameters:
            return None
        return DynamicCache(config=self.net.config)

    def detect_head(self, evaluate: Callable[[Callable[[States], Tensor]], Tensor]) -> None:
        """Detect whether the last layer on the base model's states returns the network's logits. If so, logits can be
        computed for some positions alone from now on.

        Some networks transform their logits, or the states before the last layer. They always compute all logits.

        Args:
            evaluate: runs the model, which has its weights, on some tokens with the given `reduce`.
        """
        self.separate_head()
        if not self._head_is_separate:
            return
        with torch.no_grad():
            partial = evaluate(lambda states: states.head(states.states))
            self._head_is_separate = False
            full = evaluate(lambda states: states.states)
        self._head_is_separate = torch.equal(partial, full)

    def separate_head(self) -> None:
        """Compute logits for some positions alone, if the network names a last layer."""
        from transformers import PreTrainedModel

        self._head_is_separate = isinstance(self.net, PreTrainedModel) and self.net.get_output_embeddings() is not None


def logits_as_states(logits: Tensor) -> States:
    """States of a model without a separate head: the logits, with the identity as head."""
    return States(logits, lambda values: values, (), logits.shape[-1])


def _requests(extras: frozenset[Extra]) -> dict[str, bool]:
    """The arguments that request these outputs from transformers."""
    return {f"output_{extra}": True for extra in sorted(extras)}


def _outputs(output: Any, extras: frozenset[Extra]) -> Outputs:
    logits = output if isinstance(output, Tensor) else output.logits
    assert isinstance(logits, Tensor)
    tensors: dict[str, tuple[Tensor, ...]] = {extra: getattr(output, extra, None) or () for extra in extras}
    for extra, value in tensors.items():
        if not value:
            raise ValueError(f"the model returned no {extra}, which were requested")
    states, attentions = (tuple(map(_no_view, tensors.get(extra, ()))) for extra in ("hidden_states", "attentions"))
    return Outputs(logits, states, attentions)


def _no_view(tensor: Tensor) -> Tensor:
    """The tensor, copied if it is a view: FSDP warns of those, since it would miss operations in place on them."""
    return tensor.clone() if tensor._is_view() else tensor


class Wraps(Protocol):
    """A task, as its models see it."""

    def wrap(self, net: nn.Module, facts: Facts) -> nn.Module:
        """The network with the task's inputs and outputs."""


def task_model(net: nn.Module, description: Facts) -> nn.Module:
    """Wrap a bare network for its task."""
    return cast("Wraps", load(description["task"])).wrap(net, description)
