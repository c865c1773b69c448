"""Static tables that code the entries of sparse distributions, fitted to a sample of them.

Log-probabilities are multiples of a step, or counts of draws. A position's entries are in order of falling probability,
so that the differences of neighbours are small; classes are numbered by frequency in the sample (ranks), so that ranks
are small too. What remains is coded with frequencies that depend on the place among the entries and on the neighbour.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from understudy.errors import UnderstudyError
from understudy.teachers.cache import integers, models, rans, topics
from understudy.teachers.cache.integers import log_shares

if TYPE_CHECKING:  # launchers check files without torch
    from understudy.teachers.cache.sparse import Sparse

STEP = 0.15
"""The default step of log-probabilities, in nats.

With q = quantised p, normalised again, and errors e in [-step/2, step/2], KL(p || q) = log E[exp(e)] - E[e]. It is at
most step^2 / 8 (Hoeffding's lemma: 0.0028 nats here), and about half the variance of e, step^2 / 24 (0.00094 nats) for
errors that are uniform, less where one class has most of the mass.
"""


LARGEST_VOCABULARY = integers.LIMIT - topics.HEAD

Class = Annotated[int, Field(ge=0, lt=LARGEST_VOCABULARY)]


class StoredTables(BaseModel):
    """The types and limits of tables in JSON."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    step: float = Field(gt=1e-6, le=10)
    draws: int = Field(ge=0, lt=integers.LIMIT)
    most: int = Field(ge=1, le=integers.LIMIT)
    order: list[Class] = Field(min_length=1, max_length=LARGEST_VOCABULARY)
    heads: list[list[Class]] = Field(min_length=1, max_length=topics.MOST_TOPICS)
    frequencies: Annotated[
        list[
            Annotated[
                list[Annotated[int, Field(ge=0, le=rans.TOTAL)]],
                Field(min_length=integers.SYMBOLS, max_length=integers.SYMBOLS),
            ]
        ],
        Field(min_length=models.MODELS, max_length=models.MODELS),
    ]


class Levels(NamedTuple):
    """Distributions in integers."""

    counts: NDArray[np.int64]
    """(n,) entries of each position."""
    tails: NDArray[np.int64]
    """(n,) 0 for none, otherwise the level + 1."""
    topics: NDArray[np.int64]
    """(n,) the topic of each position."""
    levels: NDArray[np.int64]
    """(n, w) ascending in a position."""
    ranks: NDArray[np.int64]
    """(n, w) in the position's topic, ascending where levels are equal."""


@dataclass(frozen=True)
class Tables:
    """What encoder and decoder share.

    Attributes:
        step: of log-probabilities, in nats; the tail alone has it if draws > 0.
        draws: the sum of a position's counts; 0 for log-probabilities.
        most: entries that a position may have.
        order: all classes by falling frequency.
        heads: (topics, classes) each topic's own order of its most frequent classes.
        frequencies: of each model's symbols, rows of sum rans.TOTAL.
    """

    step: float
    draws: int
    most: int
    order: NDArray[np.int64]
    heads: NDArray[np.int64]
    frequencies: rans.Frequencies

    @classmethod
    def fit(cls, sparses: "Sequence[Sparse]", step: float = STEP, draws: int = 0) -> Self:
        """Tables for distributions like these.

        Args:
            sparses: a sample. Positions with more entries than the widest of these cannot be coded.
            step: of log-probabilities, in nats.
            draws: of sampled distributions, whose counts are coded without loss; 0 for others.

        Raises:
            UnderstudyError: the vocabulary is too large.
        """
        vocabulary = sparses[0].vocabulary
        if vocabulary > LARGEST_VOCABULARY:
            raise UnderstudyError(f"cached logits: at most {LARGEST_VOCABULARY:,} classes, not {vocabulary:,}")
        most = max(1, *(part.ids.shape[1] for part in sparses))
        parts = [part.ids.cpu().numpy() for part in sparses]
        ids = np.concatenate([np.pad(part, ((0, 0), (0, most - part.shape[1])), constant_values=-1) for part in parts])
        counts = np.bincount(ids[ids >= 0], minlength=vocabulary)
        order, heads = np.argsort(-counts, kind="stable"), topics.fit(ids, counts)
        limits = symbol_limits(most, len(heads), heads.shape[1] + vocabulary)
        tables = cls(
            step, draws, most, order, heads, models.frequencies(np.zeros(0, np.int64), np.zeros(0, np.uint8), limits)
        )
        for _ in range(2):  # topics are assigned by the frequencies of the first time
            coded = [tables.symbols(tables.levels(part)) for part in sparses]
            seen = np.concatenate([part.models[part.models >= 0] for part in coded])
            symbols = np.concatenate([part.symbols[part.models >= 0] for part in coded])
            tables = cls(step, draws, most, order, heads, models.frequencies(seen, symbols, limits))
        return tables

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        numbers = {"step": self.step, "draws": self.draws, "most": self.most}
        arrays = {"order": self.order, "heads": self.heads, "frequencies": self.frequencies}
        return numbers | {name: array.tolist() for name, array in arrays.items()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Tables of JSON values, which may be of any origin.

        Raises:
            UnderstudyError: they are not what to_json() writes.
        """
        try:
            stored = StoredTables.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            raise UnderstudyError(f"tables of cached logits: {first['loc']}: {first['msg']}") from None
        order, frequencies = np.array(stored.order, np.int64), np.array(stored.frequencies, np.int64)
        if not np.array_equal(np.sort(order), np.arange(len(order))):
            raise UnderstudyError("tables of cached logits: the order does not have each class once")
        length = min(topics.HEAD, len(order))
        if any(len(head) != length or len(set(head)) != length or max(head) >= len(order) for head in stored.heads):
            raise UnderstudyError("tables of cached logits: a topic does not have different classes")
        limits = symbol_limits(stored.most, len(stored.heads), length + len(order))
        is_symbol = np.arange(integers.SYMBOLS) < limits[:, None]
        if not (np.array_equal(frequencies > 0, is_symbol) and bool((frequencies.sum(axis=1) == rans.TOTAL).all())):
            raise UnderstudyError("tables of cached logits: frequencies of a wrong sum or of wrong symbols")
        heads = np.array(stored.heads, np.int64)
        return cls(stored.step, stored.draws, stored.most, order, heads, frequencies)

    @property
    def vocabulary(self) -> int:
        """The number of classes."""
        return len(self.order)

    @cached_property
    def lookup(self) -> NDArray[np.int64]:
        """The decoder's form of the frequencies."""
        return rans.packed(self.frequencies)

    @cached_property
    def _ranks(self) -> NDArray[np.int32]:
        """(K, topics)"""
        return topics.ranks(self.heads, self.order)

    @cached_property
    def _costs(self) -> NDArray[np.uint8]:
        """An entry's quarters of a bit, about, by class and topic (K + 1, topics); 0 for no class."""
        together = np.maximum(1, self.frequencies[models.RANK :].sum(axis=0))
        bits = np.log2(together.sum() / together) + integers.BITS
        quarters = np.minimum(np.rint(4 * bits), 255).astype(np.uint8)
        costs = np.zeros((self.vocabulary + 1, len(self.heads)), np.uint8)
        costs[:-1] = quarters[integers.split(self._ranks)[0]]
        return costs

    def levels(self, sparse: "Sparse") -> Levels:
        """Distributions in integers, in the order in which they are coded.

        Raises:
            UnderstudyError: they are not of these tables' kind: another vocabulary, more entries, no entry, no
                log-probabilities, or no multiples of 1 / draws.
        """
        ids = sparse.ids.cpu().numpy()
        log_probs, tail = (part.detach().cpu().double().numpy() for part in (sparse.log_probs, sparse.tail))
        used = ids >= 0
        counts = used.sum(axis=1)
        fits = sparse.vocabulary == self.vocabulary and int(ids.max(initial=0)) < self.vocabulary
        if not fits or int(counts.min(initial=1)) < 1 or int(counts.max(initial=1)) > self.most:
            raise UnderstudyError(
                f"cached logits: the tables are for 1 to {self.most:,} of {self.vocabulary:,} classes by position"
            )
        levels = np.zeros(ids.shape, np.int64)
        levels[used] = _counts(log_probs[used], self.draws) if self.draws else _multiples(log_probs[used], self.step)
        tails = np.zeros(len(tail), np.int64)
        tails[tail != -np.inf] = _multiples(tail[tail != -np.inf], self.step) + 1
        assigned = topics.assign(ids, self._costs)
        ranks = self._ranks[np.maximum(ids, 0), assigned[:, None]]
        keys = np.sort(np.where(used, levels << 20 | ranks, 2**62), axis=1)[:, : int(counts.max(initial=0))]
        return Levels(counts, tails, assigned, keys >> 20, keys & integers.LIMIT - 1)

    def symbols(self, levels: Levels) -> rans.Symbols:
        """The symbols of distributions, in the order of decoding."""
        counts, tails, assigned, by_entry, ranks = levels
        positions, width = by_entry.shape
        places = np.arange(width)
        place_classes = np.array([models.place_class(place) for place in range(width)], np.int64)
        unused = places >= counts[:, None]
        gaps = np.diff(by_entry, axis=1, prepend=0)
        before = np.concatenate([np.zeros((positions, 2), np.int64), gaps[:, 1:-1]], axis=1)[:, :width]
        if self.draws:
            gap_models = models.count_gap_models(self.draws - by_entry + gaps)
        else:
            gap_models = models.gap_models(place_classes, before)
        gap_models[:, :1] = models.first_models(tails)[:, None]
        rank_symbols = integers.split(ranks)[0].astype(np.int64)
        symbols_before = np.roll(rank_symbols, 1, axis=1)
        rank_models = models.rank_models(place_classes, (gaps == 0) & (places > 0), symbols_before)
        coded_models = np.empty((3 + 2 * width, positions), np.int64)
        values = np.empty_like(coded_models)
        coded_models[:3] = np.array([models.COUNT, models.TAIL, models.TOPIC])[:, None]
        values[0], values[1], values[2] = self.most - counts, tails, assigned
        coded_models[3::2], coded_models[4::2] = (np.where(unused, -1, rows).T for rows in (gap_models, rank_models))
        values[3::2], values[4::2] = (np.where(unused, 0, rows).T for rows in (gaps, ranks))
        rows = np.arange(len(values))
        return rans.Symbols(coded_models, values, joined=(rows >= 3) & (rows % 2 == 1))

    def log_probs(self, levels: NDArray[np.int64]) -> NDArray[np.float32]:
        """The log-probabilities of levels."""
        if self.draws:
            return log_shares(self.draws - levels, self.draws)
        return (levels * -self.step).astype(np.float32)


def symbol_limits(most: int, topics_in_all: int, ranks_in_all: int) -> NDArray[np.int64]:
    """For each model the number of its symbols."""
    limits = np.full(models.MODELS, integers.SYMBOLS)
    limits[models.COUNT] = integers.symbols_below(most)
    limits[models.TOPIC] = integers.symbols_below(topics_in_all)
    limits[models.RANK :] = integers.symbols_below(ranks_in_all)
    return limits


def _multiples(log_probs: NDArray[np.float64], step: float) -> NDArray[np.int64]:
    multiples = np.rint(log_probs / -step)
    if not bool(((multiples >= 0) & (multiples < integers.LIMIT - 1)).all()):
        raise UnderstudyError("cached logits: a log-probability is above 0, NaN, or too small")
    return multiples.astype(np.int64)


def _counts(log_probs: NDArray[np.float64], draws: int) -> NDArray[np.int64]:
    """Levels of shares of draws: draws less the count."""
    shares = np.exp(log_probs) * draws
    counts = np.rint(shares)
    if not bool(((counts >= 1) & (counts <= draws) & (np.abs(shares - counts) < 1e-3)).all()):
        raise UnderstudyError(f"cached logits: a probability is not that of a class drawn in {draws} draws")
    levels: NDArray[np.int64] = draws - counts.astype(np.int64)
    return levels
