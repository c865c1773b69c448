"""Causal language modelling: every token of a document, from those before it.

Like every task's module (task.py), it imports nothing heavy at its top.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

    from understudy.data.loader import Examples
    from understudy.data.measured import Integers, TestSplit
    from understudy.data.prepare import Batches
    from understudy.data.raw import Broken, Checked, Raw
    from understudy.models.facts import Facts
    from understudy.recipe.data import Data

NOUN: str = "document"
LABELLED: bool = False
METRICS: tuple[str, ...] = ("bits_per_byte", "perplexity", "nll", "accuracy", "calibration_error")
SETTINGS: frozenset[str] = frozenset({"data.text", "evaluate.stride"})
AUTO_MODEL: str = "AutoModelForCausalLM"
ARCHITECTURES: str = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
PEFT_TYPE: str | None = "CAUSAL_LM"
LABELS_WEIGHT: float = 0.2
"""Chosen with benchmarks/defaults.py, as the temperature. With labels 0.1 and logits 0.9 at T = 4, an earlier default,
students were 10 % worse than their control."""
TEMPERATURE: float = 1.0


def check(record: "Raw") -> "Checked | Broken":
    """A document is text in UTF-8."""
    from understudy.data.documents import check_document

    return check_document(record)


def prepare(data: "Data", labels: list[str], records: "Path", batches: "Batches", folder: "Path") -> "Facts":
    """Tokens of all documents end to end; with packing, the sequences that whole documents fill.

    Training reads sequences; the test split is read document by document.
    """
    from understudy.data.packing import write_packed
    from understudy.data.token_arrays import write_tokenizer, write_tokens
    from understudy.recipe.data import Text

    del labels
    shape = data.text or Text()
    by = write_tokenizer(shape.tokenizer, records, folder)
    facts: Facts = {
        "task": "causal-lm",
        "vocab_size": by.size,
        "eos_id": by.end,
        "sequence_length": shape.sequence_length,
        "tokens": write_tokens(by, batches, folder),
    }
    if by.first is not None and by.first != by.end:
        facts["bos_id"] = by.first
    if by.special is not None:
        facts["special_ids"] = by.special
    if shape.packing == "documents":
        for split in ("train", "validation"):
            write_packed(folder, split, shape.sequence_length)
        facts["packing"] = "documents"
    return facts


def open_split(folder: "Path", split: str, facts: "Facts") -> "Examples":
    """Windows of tokens, with the tokenizer's first token before each document, or packed documents."""
    from understudy.data.loader import BegunExamples, PackedExamples, TextExamples
    from understudy.models.facts import first_token, keeps_apart

    length, end = facts["sequence_length"], facts["eos_id"]
    if keeps_apart(facts):
        return PackedExamples(folder, split, length, end, first_token(facts))
    if "bos_id" in facts:
        return BegunExamples(folder, split, length, end, facts["bos_id"])
    return TextExamples(folder, split, length, end)


def wrap(net: "nn.Module", facts: "Facts") -> "nn.Module":
    """Tokens to a logit for each token of the vocabulary, at each position."""
    from understudy.models.tasks import TextModel

    return TextModel(net, facts["vocab_size"])


def targets(examples: "Path", split: str) -> "NDArray[Any]":
    """Every token of a document is a target."""
    import numpy as np

    tokens: NDArray[Any] = np.load(examples / f"{split}.tokens.npy", mmap_mode="r")
    return tokens


def lengths(examples: "Path") -> "tuple[Integers, Integers]":
    """A document is a prediction for each of its tokens."""
    import numpy as np

    return np.diff(np.load(examples / "test.offsets.npy")), np.load(examples / "test.bytes.npy")


def test_split(
    examples: "Path", facts: "Facts", model: "Facts", stride: int | None, records: "Path | None", folder: "Path | None"
) -> "TestSplit":
    """Windows of documents; a champion may have been registered without its tokenizer's first token."""
    from understudy.data.measured import Documents
    from understudy.models.facts import first_token

    del records, folder
    length = facts["sequence_length"]
    return Documents(examples, length, first_token(model), stride or length)


SHOWN = 120
"""Tokens of a document that a reader is shown."""


def shown(examples: "Path", facts: "Facts", number: int) -> str:
    """The document's first tokens."""
    import numpy as np
    from tokenizers import Tokenizer

    del facts
    tokens = np.load(examples / "test.tokens.npy", mmap_mode="r")
    start, end = np.load(examples / "test.offsets.npy", mmap_mode="r")[number : number + 2]
    first = tokens[start : min(end, start + SHOWN)].tolist()
    text: str = Tokenizer.from_file(str(examples / "tokenizer.json")).decode(first)
    return text
