"""Caching of a teacher's logits: all targets of a training split, part by part, by all ranks of a job.

A part has a fixed range of examples, and is computed in fixed batches, so its bytes do not depend on the number of
ranks. Parts that an earlier attempt has finished are not computed again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from understudy.data.loader import IGNORED, Examples
from understudy.recipe.logits import LogitCache, Nucleus, TopK
from understudy.teachers.cache import parts
from understudy.teachers.cache.sparse import Sparse, joined, kl, nucleus, sampled, top_k
from understudy.teachers.cache.tables import Tables

FITTED = 64
"""Examples whose logits the tables are fitted to, spread over the split."""


@dataclass(frozen=True)
class Cached:
    """What is cached, and how it is computed."""

    cache: LogitCache
    temperature: float
    vocabulary: int
    size: int
    """Examples in a batch."""
    device: torch.device
    rank: int
    world_size: int
    in_step: bool
    """Whether ranks compute each batch together, since they share a model."""


class _Batch(NamedTuple):
    """The entries of a batch's targets."""

    counts: NDArray[np.int64]
    """Targets of each example."""
    sparse: Sparse
    kl: Tensor
    """Of the teacher from its entries, in nats."""


def cache_logits(
    model: nn.Module,
    examples: Examples,
    settings: Cached,
    folder: Path,
    digests: Mapping[str, str],
    advance: Callable[[int], None],
) -> None:
    """Write the logits of all targets into a folder. Must be called on every rank, in a process group.

    Args:
        model: on its device, in evaluation mode.
        examples: the training split.
        settings: what is cached.
        folder: an existing folder, the same for all ranks; it may have parts.
        digests: of the teacher and the examples, to be stored.
        advance: called with a number of examples that all ranks have done.
    """
    facts = parts.Facts(
        examples=len(examples),
        vocabulary=settings.vocabulary,
        temperature=settings.temperature,
        method=settings.cache.model_dump(mode="json"),
        digests=dict(digests),
    )
    if settings.rank == 0:
        parts.begin(folder, facts)
    if not parts.has_tables(folder):
        chosen = np.linspace(0, len(examples) - 1, min(FITTED, len(examples))).astype(np.int64)
        fitted = [batch.sparse for batch in _batches(model, examples, settings, chosen)]
        if settings.rank == 0:
            parts.write_tables(folder, Tables.fit(joined(fitted)))
    dist.barrier()
    missing = parts.missing(folder)
    advance(len(examples) - sum(len(parts.examples_of(facts, number)) for number in missing))
    dist.barrier()
    for start in range(0, len(missing), settings.world_size):
        round_ = missing[start : start + settings.world_size]
        number = round_[settings.rank] if settings.rank < len(round_) else None
        _write_part(model, examples, settings, folder, facts, number)
        advance(sum(len(parts.examples_of(facts, other)) for other in round_))
    dist.barrier()
    if settings.rank == 0:
        parts.finish(folder)


def _write_part(
    model: nn.Module, examples: Examples, settings: Cached, folder: Path, facts: parts.Facts, number: int | None
) -> None:
    """Write a part; a rank without one computes as long as the others, if they need it."""
    if number is None and not settings.in_step:
        return
    indices = parts.examples_of(facts, 0 if number is None else number)
    longest = -(-len(parts.examples_of(facts, 0)) // settings.size) * settings.size
    if settings.in_step:  # all ranks compute as many batches; further ones repeat the first example
        indices_padded = np.concatenate([indices, np.full(longest - len(indices), indices[0])])
    else:
        indices_padded = indices
    batches = list(_batches(model, examples, settings, indices_padded))
    if number is not None:
        counts = np.concatenate([batch.counts for batch in batches])[: len(indices)]
        sparse = joined([batch.sparse for batch in batches])
        positions = int(counts.sum())
        divergence = torch.cat([batch.kl for batch in batches])[:positions]
        parts.write_part(folder, number, counts, sparse[:positions], divergence.sum().item())


def _batches(model: nn.Module, examples: Examples, settings: Cached, indices: NDArray[np.int64]) -> Iterator[_Batch]:
    """The entries of examples, batch by batch."""
    for start in range(0, len(indices), settings.size):
        rows = indices[start : start + settings.size]
        inputs, labels = examples.batch(rows)
        positions = examples.positions(rows)
        placed = {} if positions is None else {"positions": positions.to(settings.device)}
        with torch.inference_mode():
            logits = model(inputs.to(settings.device), **placed).logits
        is_target = labels != IGNORED
        counts = is_target.reshape(len(rows), -1).sum(dim=1).numpy()
        log_probs = torch.log_softmax(logits[is_target.to(settings.device)].float() / settings.temperature, dim=-1)
        sparse = _chosen(settings.cache, log_probs, _seeds(rows, counts))
        yield _Batch(counts, sparse, kl(log_probs, sparse).cpu())


def _chosen(cache: LogitCache, log_probs: Tensor, seeds: NDArray[np.int64]) -> Sparse:
    if isinstance(cache, TopK):
        return top_k(log_probs, min(cache.k, log_probs.shape[1]))
    if isinstance(cache, Nucleus):
        return nucleus(log_probs, cache.mass, min(cache.most, log_probs.shape[1]))
    return sampled(log_probs, cache.draws, torch.from_numpy(seeds))


def _seeds(examples: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A seed for each target: its example's index, and its place in the example."""
    places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    seeds: NDArray[np.int64] = np.repeat(examples, counts) * 2**24 + places
    return seeds
