"""Beginnings of test examples, which every model continues. A report shows the continuations."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
EXAMPLES = 4
"""Maximum number of examples to continue."""
TOKENS = 32
"""Maximum tokens of a document's beginning, and of a continuation; the sequence length of a model may allow fewer."""


@dataclass(frozen=True)
class Prompts:
    """The examples to continue. Their tokens begin at `begins`, and the continuations at `ends`, among the split's."""

    examples: Integers
    begins: Integers
    ends: Integers
    tokens: int
    """The tokens of a continuation."""

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a model's continuations: examples x tokens."""
        return len(self.examples), self.tokens


NO_EXAMPLES = np.zeros(0, dtype=np.int64)
NONE = Prompts(NO_EXAMPLES, NO_EXAMPLES, NO_EXAMPLES, 0)


def of_documents(offsets: Integers, length: int) -> Prompts:
    """Documents that are long enough, spread evenly.

    Args:
        offsets: the documents' offsets, (documents + 1,).
        length: the models' sequence length.
    """
    prompt = min(TOKENS, length // 2)
    tokens = min(TOKENS, length - prompt)
    long_enough = np.flatnonzero(np.diff(offsets) >= prompt + tokens) if prompt else np.zeros(0, dtype=np.int64)
    examples = _spread(long_enough)
    return Prompts(examples, offsets[examples], offsets[examples] + prompt, tokens)


def of_answers(offsets: Integers, learned: NDArray[np.bool_], length: int) -> Prompts:
    """Conversations up to their last answer, spread evenly, with room for a continuation.

    Args:
        offsets: the conversations' offsets, (conversations + 1,).
        learned: whether a token is one of an answer.
        length: the models' sequence length.
    """
    begins_answer = np.flatnonzero(learned & ~np.concatenate([[False], learned[:-1]]))
    last = np.searchsorted(begins_answer, offsets[1:]) - 1  # the last one that begins before the conversation's end
    has_answer = (np.diff(offsets) > 0) & (last >= 0)
    ends = np.where(has_answer, begins_answer[last] if len(begins_answer) else 0, offsets[:-1])
    tokens = min(TOKENS, length // 2)
    fits = (ends > offsets[:-1] + 1) & (ends - offsets[:-1] + tokens <= length)
    examples = _spread(np.flatnonzero(fits))
    return Prompts(examples, offsets[examples], ends[examples], tokens)


def _spread(candidates: NDArray[Any]) -> Integers:
    return candidates[np.linspace(0, len(candidates) - 1, min(EXAMPLES, len(candidates))).astype(np.int64)]
