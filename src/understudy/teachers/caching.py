"""Caching of a teacher's logits: all targets of a training split, part by part, by all ranks of a job.

A part has a fixed range of examples, and is computed in fixed batches, so its bytes do not depend on the number of
ranks. Parts that an earlier attempt has finished are not computed again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from understudy.data.loader import IGNORED, Examples
from understudy.recipe.logits import LogitCache, Nucleus, Sampled, TopK
from understudy.teachers.cache import parts
from understudy.teachers.cache.layout import Description, read_description, read_tables
from understudy.teachers.cache.sparse import Sparse, joined, kl, nucleus, sampled, top_k
from understudy.teachers.cache.tables import Tables

FITTED = 64
"""Examples whose logits the tables are fitted to, spread over the split."""
PARTS = 32
"""The least number of parts, for the ranks to share, if there are enough targets."""
TARGETS_PER_PART = 2**8, 2**16
"""The fewest and the most targets in a part, about. With 50 classes each, the most take a rank 40 MB of memory."""


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

    @property
    def draws(self) -> int:
        """The number of draws, if classes are sampled; otherwise 0."""
        return self.cache.draws if isinstance(self.cache, Sampled) else 0

    @property
    def width(self) -> int:
        """The most classes of a target."""
        most = self.draws
        if isinstance(self.cache, TopK | Nucleus):
            most = self.cache.k if isinstance(self.cache, TopK) else self.cache.most
        return min(most, self.vocabulary)


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
    facts: Mapping[str, Any],
    advance: Callable[[int], None],
) -> None:
    """Write the logits of all targets into a folder. Must be called on every rank, in a process group.

    Args:
        model: on its device, in evaluation mode.
        examples: the training split.
        settings: what is cached.
        folder: an existing folder, the same for all ranks; it may have parts.
        facts: of teacher, examples and method, to be stored.
        advance: called with a number of examples that all ranks have done.
    """
    if not (folder / "logits.json").exists():
        chosen = np.linspace(0, len(examples) - 1, min(FITTED, len(examples))).astype(np.int64)
        fitted = [batch.sparse for batch in _batches(model, examples, settings, chosen)]
        tables = Tables.fit([joined(fitted, settings.width)], draws=settings.draws)
        if settings.rank == 0:
            parts.begin(folder, tables, len(examples), _per_part(examples))
    dist.barrier()
    description = read_description(folder)
    tables, missing = read_tables(folder, description), parts.missing(folder)
    dist.barrier()  # no rank writes before all have looked
    advance(len(examples) - sum(map(description.in_part, missing)))
    for start in range(0, len(missing), settings.world_size):
        numbers = missing[start : start + settings.world_size]
        number = numbers[settings.rank] if settings.rank < len(numbers) else None
        part = _part(model, examples, settings, description, number)
        if part and number is not None:
            parts.write_part(folder, number, part.counts, part.sparse, tables, part.kl)
        advance(sum(map(description.in_part, numbers)))
    dist.barrier()
    if settings.rank == 0:
        parts.finish(folder, facts)


def _per_part(examples: Examples) -> int:
    """The number of examples in a part."""
    targets = max(1, examples.targets(np.arange(len(examples))))
    fewest, most = TARGETS_PER_PART
    return max(1, min(max(targets // PARTS, fewest), most) * len(examples) // targets)


def _part(
    model: nn.Module, examples: Examples, settings: Cached, description: Description, number: int | None
) -> _Batch | None:
    """The entries of a part; a rank without one computes as long as the others, if they need it."""
    if number is None and not settings.in_step:
        return None
    count = description.in_part(number or 0)
    indices = np.arange(count) + (number or 0) * description.examples_per_part
    if settings.in_step:  # all ranks compute as many batches; further ones repeat an example
        most = -(-description.examples_per_part // settings.size) * settings.size
        indices = np.concatenate([indices, np.full(most - count, indices[0])])
    batches = list(_batches(model, examples, settings, indices))
    counts = np.concatenate([batch.counts for batch in batches])[:count]
    positions = slice(int(counts.sum()))
    sparse = joined([batch.sparse for batch in batches], settings.width)
    cut = Sparse(sparse.ids[positions], sparse.log_probs[positions], sparse.tail[positions], sparse.vocabulary)
    return _Batch(counts, cut, torch.cat([batch.kl for batch in batches])[positions])


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
    return sampled(log_probs, cache.draws, seeds)


def _seeds(examples: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A seed for each target: its example's index, and its place in the example."""
    places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    seeds: NDArray[np.int64] = np.repeat(examples, counts) * 2**24 + places
    return seeds
