"""Beginnings of test examples, which every model continues: an answer to measure, or a text for a report to show."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
EXAMPLES = 4
"""Maximum number of documents to continue."""
TOKENS = 32
"""Maximum tokens of a document's beginning, and of a continuation; the sequence length of a model may allow fewer."""


@dataclass(frozen=True)
class Prompts:
    """The examples to continue.

    Their tokens begin at `begins` among the split's, continuations at `ends`, and the data's own end at `data_ends`.
    """

    examples: Integers
    begins: Integers
    ends: Integers
    data_ends: Integers
    most: Integers
    """The most tokens of each continuation."""
    stops: frozenset[int] = frozenset()
    """Tokens that end a continuation."""

    @property
    def tokens(self) -> int:
        """The most tokens of any continuation."""
        return int(self.most.max(initial=0))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a model's continuations: examples x tokens."""
        return len(self.examples), self.tokens

    def limited(self, examples: int, tokens: int) -> "Prompts":
        """At most so many examples, spread evenly, and tokens of a continuation."""
        chosen = spread(np.arange(len(self.examples)), examples)
        parts = {name: getattr(self, name)[chosen] for name in ("examples", "begins", "ends", "data_ends")}
        return replace(self, **parts, most=np.minimum(self.most[chosen], tokens))


NO_EXAMPLES = np.zeros(0, dtype=np.int64)
NONE = Prompts(NO_EXAMPLES, NO_EXAMPLES, NO_EXAMPLES, NO_EXAMPLES, NO_EXAMPLES)


def of_documents(offsets: Integers, length: int) -> Prompts:
    """Documents that are long enough, spread evenly.

    Args:
        offsets: the documents' offsets, (documents + 1,).
        length: the models' sequence length.
    """
    prompt = min(TOKENS, length // 2)
    tokens = min(TOKENS, length - prompt)
    long_enough = np.flatnonzero(np.diff(offsets) >= prompt + tokens) if prompt else np.zeros(0, dtype=np.int64)
    examples = spread(long_enough, EXAMPLES)
    ends = offsets[examples] + prompt
    return Prompts(examples, offsets[examples], ends, ends + tokens, np.full(len(examples), tokens))


def of_answers(offsets: Integers, begins: Integers, ends: Integers, length: int, stops: frozenset[int]) -> Prompts:
    """All conversations that have an answer, up to their last one.

    Args:
        offsets: the conversations' offsets, (conversations + 1,).
        begins: where the last answer of each begins, in tokens from the conversation's begin; 0 if it has none.
        ends: where that answer ends.
        length: the models' sequence length.
        stops: the tokens that end an answer.
    """
    examples = np.flatnonzero((begins > 0) & (begins < length))
    starts = offsets[examples]
    return Prompts(
        examples, starts, starts + begins[examples], starts + ends[examples], length - begins[examples], stops
    )


def spread(candidates: NDArray[Any], count: int) -> Integers:
    """At most so many of the candidates, spread evenly over them."""
    return candidates[np.linspace(0, len(candidates) - 1, min(count, len(candidates))).astype(np.int64)]
