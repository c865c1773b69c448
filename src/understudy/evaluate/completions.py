"""Completions of test documents by each model, for a reader: the same beginnings for all, decoded greedily.

Metrics show how likely the actual text is to a model; completions show the text that it generates. They do not affect
the verdict.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import printable_lines
from understudy.evaluate.contents import COMPLETIONS
from understudy.evaluate.metrics import FloatArray
from understudy.store.files import read_json

Integers = NDArray[np.int64]
DOCUMENTS = 4
"""Maximum number of documents to complete."""
TOKENS = 32
"""Maximum tokens of a beginning and of a completion; the sequence length of a model may allow fewer."""


@dataclass(frozen=True)
class Beginnings:
    """The documents to complete, and the number of tokens of each beginning and completion."""

    documents: Integers
    prompt_length: int
    completion_length: int

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a model's completions: documents x tokens."""
        return len(self.documents), self.completion_length

    @property
    def steps(self) -> int:
        """The number of steps, each of which generates the next token of all completions."""
        return self.completion_length if len(self.documents) else 0


def beginnings(tokens: NDArray[Any], length: int) -> Beginnings:
    """Documents of the test split that are long enough, spread evenly.

    Args:
        tokens: number of tokens of each document.
        length: the models' sequence length.
    """
    prompt_length = min(TOKENS, length // 2)
    completion_length = min(TOKENS, length - prompt_length)
    long_enough = (
        np.flatnonzero(tokens >= prompt_length + completion_length) if prompt_length else np.zeros(0, dtype=np.int64)
    )
    evenly_spaced = np.linspace(0, len(long_enough) - 1, min(DOCUMENTS, len(long_enough))).astype(np.int64)
    return Beginnings(long_enough[evenly_spaced], prompt_length, completion_length)


@dataclass(frozen=True)
class Completed:
    """The beginning of a document, and its continuations: the original and each model's."""

    document: int
    beginning: str
    texts: Mapping[str, str]
    """Text by role; `data` is the original."""


def completed(examples: Path, per_example: Mapping[str, Any]) -> list[Completed]:
    """The completions of all models that have some, as text.

    Args:
        examples: the folder of an `examples` object.
        per_example: the arrays of per_example.npz.
    """
    facts = read_json(examples / "examples.json") or {}
    completions = {name.partition(".")[0]: ids for name, ids in per_example.items() if name.endswith(f".{COMPLETIONS}")}
    if "labels" in facts or not completions:
        return []
    from tokenizers import Tokenizer

    tokenizer, end = Tokenizer.from_file(str(examples / "tokenizer.json")), int(facts["eos_id"])
    tokens = np.load(examples / "test.tokens.npy", mmap_mode="r")
    offsets = np.load(examples / "test.offsets.npy", mmap_mode="r")
    prompts = beginnings(np.diff(offsets), facts["sequence_length"])

    def decoded(ids: FloatArray) -> str:
        if np.isnan(ids).any():
            return "not measured"
        ends = np.flatnonzero(ids == end)
        if len(ends) and ends[0] == 0:
            return "(the text ends)"
        visible = [int(token) for token in (ids[: ends[0]] if len(ends) else ids)]
        # Special tokens are shown: padding is not an end of text.
        text = tokenizer.decode(visible, skip_special_tokens=False)
        return printable_lines(text) or "(nothing that can be seen)"

    rows = []
    for row, document in enumerate(prompts.documents):
        start = int(offsets[document])
        prompt_end = start + prompts.prompt_length
        completion_end = prompt_end + prompts.completion_length
        data = {"data": decoded(np.asarray(tokens[prompt_end:completion_end], dtype=np.float64))}
        models = {role: decoded(ids[row]) for role, ids in completions.items()}
        rows.append(
            Completed(int(document), decoded(np.asarray(tokens[start:prompt_end], dtype=np.float64)), data | models)
        )
    return rows
