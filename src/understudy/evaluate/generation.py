"""Greedy continuations of prompts, batch by batch: the likeliest token after each token, until one ends the text.

The prompts of a batch differ in length. Models of transformers read them padded on the left, and keep the keys and
values of earlier tokens, so that a step computes one token of each. Other models read them padded on the right, which
no earlier position sees, and compute all positions in every step.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.data.prompts import Integers, Prompts
from understudy.evaluate.metrics import FloatArray
from understudy.evaluate.shares import Share
from understudy.models.tasks import TextModel


class _Decoder(Protocol):
    """The state of a batch of texts."""

    def __call__(self, tokens: Tensor | None, is_done: Tensor) -> Tensor:
        """The logits (B, vocabulary) that follow, after a further token of each, (B,), is added.

        A text that is done does not grow: its token replaces the last one, and its logits mean nothing.
        """


def generated(
    module: nn.Module,
    inputs: Sequence[Integers],
    prompts: Prompts,
    size: int,
    device: torch.device,
    tick: Callable[[int], None],
    share: Share,
) -> FloatArray:
    """A model's continuations (prompts, tokens), valid on the first rank only.

    After a token that ends a text, it is repeated. From the first position whose logits are NaN, tokens are NaN.

    Args:
        module: the model, in inference mode.
        inputs: the tokens of each prompt.
        prompts: how far each is continued.
        size: prompts in a batch.
        device: the model's.
        tick: called with the number of steps that the ranks have done since the last call, of step_count() in all.
        share: this rank's share of the batches.
    """
    continuations = np.zeros(prompts.shape)
    order = np.argsort([-len(tokens) for tokens in inputs], kind="stable")  # similar lengths need little padding
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    for start in range(0, len(batches), share.world_size):
        active = min(share.world_size, len(batches) - start)
        rows = batches[start + share.rank] if share.rank < active else None
        local = None
        if rows is not None:
            chosen, most = [inputs[row] for row in rows], prompts.most[rows]
            steps = _Steps(prompts.tokens, active, tick, share)
            local = rows, _continued(module, chosen, most, prompts.stops, device, steps)
        elif share.spread:  # the other ranks wait for this rank's shard of each block
            _continued(
                module,
                [inputs[0]],
                np.zeros(1, dtype=np.int64),
                prompts.stops,
                device,
                _Steps(prompts.tokens, 0, tick, share),
            )
        for gathered_rows, tokens in share.gathered(local):
            continuations[gathered_rows] = tokens
    return continuations


def step_count(prompts: Prompts, size: int) -> int:
    """The number of steps for all prompts: one for each token of each batch."""
    return -(-len(prompts.examples) // size) * prompts.tokens


class _Steps:
    """The steps of a round of batches, one for each rank: with a sharded model, all ranks stop together."""

    def __init__(self, count: int, active: int, tick: Callable[[int], None], share: Share) -> None:
        self.left, self._active, self._tick, self._share = count, active, tick, share

    def is_last(self, *, done: bool, device: torch.device) -> bool:
        """Whether no further step is needed, after one more."""
        is_last = self.left == 1 or self._share.all_done(done, device)
        self._tick(self._active * (self.left if is_last else 1))
        self.left -= 1
        return is_last


def _continued(
    module: nn.Module,
    prompts: Sequence[Integers],
    most: Integers,
    stops: frozenset[int],
    device: torch.device,
    steps: _Steps,
) -> FloatArray:
    """Continuations (B, steps) of a batch."""
    decoder = _decoder(module, prompts, device)
    allowed, ends = torch.as_tensor(most, device=device), torch.tensor(sorted(stops), dtype=torch.int64, device=device)
    continuations = torch.full((len(prompts), steps.left), float(min(stops, default=0)), dtype=torch.float64)
    is_done, is_broken = allowed < 1, torch.zeros(len(prompts), dtype=torch.bool, device=device)
    tokens, step = None, 0
    is_last = not steps.left
    while not is_last:
        highest, tokens = decoder(tokens, is_done).float().max(dim=-1)
        is_broken |= highest.isnan() & ~is_done
        values = tokens.double().masked_fill(is_broken, torch.nan).cpu()
        continuations[:, step] = values.where(~is_done.cpu(), continuations[:, step])
        step += 1
        is_done |= torch.isin(tokens, ends) | (allowed <= step)
        is_last = steps.is_last(done=bool((is_done | is_broken).all()), device=device)
    is_after = continuations.isnan().cumsum(dim=1) > 0
    return continuations.masked_fill(is_after, torch.nan).numpy()


def _decoder(module: nn.Module, prompts: Sequence[Integers], device: torch.device) -> _Decoder:
    cache = module.new_cache() if isinstance(module, TextModel) else None
    return _Recomputed(module, prompts, device) if cache is None else _Cached(module, cache, prompts, device)


class _Cached:
    """Texts whose keys and values are cached, padded on the left."""

    def __init__(self, module: nn.Module, cache: object, prompts: Sequence[Integers], device: torch.device) -> None:
        self._module, self._cache = module, cache
        length = max(map(len, prompts))
        self._inputs = torch.zeros((len(prompts), length), dtype=torch.int64)
        self._mask = torch.zeros_like(self._inputs)
        for row, tokens in enumerate(prompts):
            self._inputs[row, length - len(tokens) :] = torch.from_numpy(tokens)
            self._mask[row, length - len(tokens) :] = 1
        self._inputs, self._mask = self._inputs.to(device), self._mask.to(device)
        self._positions = (self._mask.cumsum(dim=1) - 1).clamp(min=0)

    def __call__(self, tokens: Tensor | None, is_done: Tensor) -> Tensor:
        if tokens is not None:
            self._inputs = tokens[:, None]
            self._mask = torch.cat([self._mask, torch.ones_like(self._inputs)], dim=1)
            self._positions = self._positions[:, -1:] + ~is_done[:, None]
        outputs = self._module(self._inputs, positions=self._positions, mask=self._mask, cache=self._cache)
        last: Tensor = outputs.logits[:, -1]
        return last


class _Recomputed:
    """Texts of which every position is computed in each step, padded on the right."""

    def __init__(self, module: nn.Module, prompts: Sequence[Integers], device: torch.device) -> None:
        self._module = module
        lengths = [len(tokens) for tokens in prompts]
        self._sequences = torch.zeros((len(prompts), max(lengths)), dtype=torch.int64)
        for row, tokens in enumerate(prompts):
            self._sequences[row, : len(tokens)] = torch.from_numpy(tokens)
        self._sequences = self._sequences.to(device)
        self._last = torch.tensor(lengths, device=device)[:, None] - 1

    def __call__(self, tokens: Tensor | None, is_done: Tensor) -> Tensor:
        if tokens is not None:
            self._last = self._last + ~is_done[:, None]
            missing = int(self._last.max()) + 1 - self._sequences.shape[1]
            self._sequences = functional.pad(self._sequences, (0, max(missing, 0)))
            self._sequences.scatter_(1, self._last, tokens[:, None])
        logits: Tensor = self._module(self._sequences).logits
        return logits.take_along_dim(self._last[..., None], dim=1)[:, 0]
