"""Text classification: one of a fixed set of labels for each text, or pair of texts.

Like every task's module, it imports nothing of understudy and nothing heavy at its top: the recipe loads it, and MLflow
stores it with each version.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from understudy.data.loader import Examples
    from understudy.data.measured import Integers, TestSplit
    from understudy.data.prepare import Batches
    from understudy.data.raw import Broken, Checked, Raw
    from understudy.data.records import Content
    from understudy.models.facts import Facts
    from understudy.recipe.data import Data
    from understudy.recipe.tasks import Kind

NOUN: str = "text"
INPUT: str = "text"
TARGETS: str = "texts"
FIELDS: "Mapping[str, Kind]" = {"text": "text", "second": "optional text", "label": "label"}
LABELLED: bool = True
PACKED: bool = False
PROPOSED_FOR: str = ""
METRICS: tuple[str, ...] = ("accuracy", "macro_f1", "balanced_accuracy", "matthews", "nll", "calibration_error")
SETTINGS: frozenset[str] = frozenset({"data.text", "model.labels"})
AUTO_MODEL: str = "AutoModelForSequenceClassification"
ARCHITECTURES: str = "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES"
PEFT_TYPE: str | None = "SEQ_CLS"
LABELS_WEIGHT: float = 0.3
"""That of images, as the temperature: not chosen by trials on texts."""
TEMPERATURE: float = 2.0

BATCH = 64  # texts


def check(record: "Raw") -> "Checked | Broken":
    """A text is in UTF-8."""
    from understudy.data.documents import check_document

    return check_document(record)


def prepare(
    data: "Data", labels: list[str], records: "Path", batches: "Batches", folder: "Path", like: "Path | None" = None
) -> "Facts":
    """SPLIT.inputs.npy, int32 (N, sequence length), with the tokens of each text or pair, and SPLIT.labels.npy (N,).

    Texts that are too long are truncated, and padded if they are shorter; in a pair the longer one is truncated first.
    """
    from understudy.data import padded_tokenizer
    from understudy.data.records import read
    from understudy.data.tokenizer import vocabulary_size
    from understudy.recipe.data import Text

    shape = data.text or Text()
    length, texts = shape.sequence_length, 1 + len(next(read(records))[0].others)
    if like:
        tokenizer, padding = padded_tokenizer.copy(like, folder)
    else:
        tokenizer, padding = padded_tokenizer.write(shape.tokenizer, _training_texts(records), folder)
    facts: Facts = {
        "task": "text-classification",
        "labels": labels,
        "vocab_size": vocabulary_size(tokenizer),
        "sequence_length": length,
        "special_ids": {"pad_token_id": padding},
        "details": {"texts": texts, **(_segments(tokenizer) if texts == 2 else {})},
    }
    _check_room(tokenizer, length, texts)
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(pad_id=padding, length=length)
    truncated = _write_inputs(batches, tokenizer, labels, length, folder)
    if truncated:
        facts["notes"] = [
            f"{truncated:,} texts have more than {length} tokens (data.text.sequence_length), and are cut to as many"
        ]
    return facts


def _training_texts(records: "Path") -> "Iterator[str]":
    from understudy.data.records import read

    rows = (row for batch in read(records, "train") for row in batch)
    return (text.decode() for row in rows for text in (row.content, *row.others.values()))


def _check_room(tokenizer: Any, length: int, texts: int) -> None:
    from understudy.errors import InputError

    least = tokenizer.num_special_tokens_to_add(texts == 2) + texts
    if length < least:
        raise InputError(f"data.text.sequence_length: {length} leaves no room for text; {least} is the least here.")


def _write_inputs(batches: "Batches", tokenizer: Any, labels: list[str], length: int, folder: "Path") -> int:
    """Write the arrays of all splits; returns the number of truncated texts or pairs."""
    from contextlib import ExitStack

    import numpy as np

    from understudy.data.npy import NpyFile
    from understudy.data.raw import SPLITS

    index, truncated = {label: number for number, label in enumerate(labels)}, 0
    with ExitStack() as stack:
        inputs = {s: stack.enter_context(NpyFile(folder / f"{s}.inputs.npy", np.int32, (length,))) for s in SPLITS}
        targets = {s: stack.enter_context(NpyFile(folder / f"{s}.labels.npy", np.int64)) for s in SPLITS}
        for batch in batches:
            for record, encoding in zip(batch, tokenizer.encode_batch([_texts(row) for row in batch]), strict=True):
                inputs[record.split].append(np.array([encoding.ids]))
                targets[record.split].append(np.array([index[str(record.label)]]))
                truncated += bool(encoding.overflowing)
    return truncated


def _texts(record: "Content") -> str | tuple[str, str]:
    """A record's text, or its two texts, in the form that a tokenizer takes."""
    text = record.content.decode()
    return (text, record.others["second"].decode()) if record.others else text


def _segments(tokenizer: Any) -> dict[str, int]:
    """The id of the token that ends the first text of a pair, if the tokenizer numbers the texts (as BERT's does).

    Raises:
        InputError: there is no special token between the texts.
    """
    from understudy.data.tokenizer import PLACE
    from understudy.errors import InputError

    encoding = tokenizer.encode("a", "b")
    texts = [index for index, special in enumerate(encoding.special_tokens_mask) if not special]
    if texts[-1] - texts[0] < len(texts):
        raise InputError(f"{PLACE}: it puts no special token between two texts. Take a tokenizer that does.")
    second = encoding.type_ids.index(1) if 1 in encoding.type_ids else 0
    # Llama's, whose models are not told either, begins the second text with the token that begins the first.
    ends_first = second and encoding.special_tokens_mask[second - 1]
    return {"separator": encoding.ids[second - 1]} if ends_first else {}


def open_split(folder: "Path", split: str, facts: "Facts") -> "Examples":
    """Texts, each with its label."""
    from understudy.data.loader import LabelledExamples

    del facts
    return LabelledExamples(folder, split, "inputs")


def expected(data: "Data", labels: "Sequence[str]", tokens: int) -> "Facts":
    """Texts of the recipe's length."""
    from understudy.recipe.data import Text

    return {
        "task": "text-classification",
        "labels": list(labels),
        "vocab_size": tokens,
        "sequence_length": (data.text or Text()).sequence_length,
    }


def blank(facts: "Facts", count: int) -> "tuple[Tensor, Tensor]":
    """Texts of one token over and over, with the first label."""
    import torch

    return torch.zeros(count, facts["sequence_length"], dtype=torch.int64), torch.zeros(count, dtype=torch.int64)


def wrap(net: "nn.Module", facts: "Facts") -> "nn.Module":
    """Padded tokens to a logit for each label."""
    from functools import partial

    from understudy.models.tasks import ClassifierModel

    config: Any = getattr(net, "config", None)
    if getattr(config, "pad_token_id", 0) is None:  # of a plan, before there is a tokenizer
        config.pad_token_id = _padding(facts)
    return ClassifierModel(net, partial(_arguments, padding=_padding(facts), separator=_separator(facts)))


def _padding(facts: "Facts") -> int:
    return facts.get("special_ids", {}).get("pad_token_id", 0)


def _separator(facts: "Facts") -> int | None:
    return facts.get("details", {}).get("separator")


def _arguments(tokens: "Tensor", padding: int, separator: int | None) -> "tuple[Tensor, Mapping[str, Tensor]]":
    """The arguments of a network of transformers for padded tokens (B, L).

    Args:
        tokens: of any integer type.
        padding: the id of the padding, which no text contains.
        separator: the id of the token after the first text, if the network is to tell the texts of a pair apart.
    """
    tokens = tokens.long()
    named = {"attention_mask": (tokens != padding).long()}
    if separator is not None:
        ends = (tokens == separator).long()
        named["token_type_ids"] = ((ends.cumsum(-1) - ends) > 0).long() * named["attention_mask"]
    return tokens, named


def targets(examples: "Path", split: str) -> "NDArray[Any]":
    """A text has one target, the index of its label."""
    import numpy as np

    labels: NDArray[Any] = np.load(examples / f"{split}.labels.npy", mmap_mode="r")
    return labels


def lengths(examples: "Path") -> "tuple[Integers, Integers]":
    """A text is one prediction, and none of its bytes is predicted."""
    import numpy as np

    count = len(np.load(examples / "test.labels.npy", mmap_mode="r"))
    return np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)


def test_split(
    examples: "Path", facts: "Facts", model: "Facts", stride: int | None, records: "Path | None", folder: "Path | None"
) -> "TestSplit":
    """Texts, the same for every model: a champion has the tokenizer of these examples."""
    from understudy.data.measured import Labelled

    del facts, model, stride, records, folder
    return Labelled(examples, "inputs")


def shown(examples: "Path", facts: "Facts", number: int) -> str:
    """The text as its model sees it; two texts with the special tokens that tell them apart."""
    import numpy as np

    from understudy.data.padded_tokenizer import readable

    tokens = np.load(examples / "test.inputs.npy", mmap_mode="r")[number]
    return readable(examples, tokens, _padding(facts), facts.get("details", {}).get("texts", 1))


def learned(examples: "Path") -> "list[list[tuple[str, bool]]]":
    """Nothing to show: all of an example is learned."""
    del examples
    return []


OUTPUTS: "Mapping[str, str]" = {"label": "string", "probability": "double", "probabilities": "doubles"}
PARAMS: "Mapping[str, int]" = {}
LIBRARIES: tuple[str, ...] = ("tokenizers",)
FILES: "Mapping[str, str]" = {}


def inputs(facts: "Facts") -> dict[str, str]:
    """A text, or two."""
    return dict.fromkeys(("text", "second")[: facts.get("details", {}).get("texts", 1)], "string")


def example(facts: "Facts") -> dict[str, list[str]]:
    """A short text, or two."""
    return {name: ["It is as good as new."] for name in inputs(facts)}


class Predictor:
    """A registered text classifier."""

    def __init__(
        self,
        facts: "Facts",
        logits: "Callable[..., Tensor]",
        folder: "Path",
        artifacts: "Mapping[str, str]",
        stride: int | None,
    ) -> None:
        from tokenizers import Tokenizer

        del artifacts, stride
        self.facts, self.logits = facts, logits
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        # As in training: a special token's name in a text is text.
        self.tokenizer.encode_special_tokens = True
        self.tokenizer.enable_truncation(facts["sequence_length"])
        self.tokenizer.enable_padding(pad_id=_padding(facts))

    def predict(self, model_input: "Any", params: "Mapping[str, Any]") -> dict[str, Any]:
        """A row for each text or pair: label, probability, probabilities."""
        import torch

        del params
        columns = [_strings(name, model_input[name]) for name in inputs(self.facts)]
        texts = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        parts = [self._logits(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        logits = torch.cat(parts or [torch.empty(0, len(self.facts["labels"]))])
        probabilities = logits.double().softmax(dim=-1).numpy()
        return {
            "label": [self.facts["labels"][index] for index in probabilities.argmax(axis=1)],
            "probability": probabilities.max(axis=1),
            "probabilities": probabilities.tolist(),
        }

    def _logits(self, texts: "Sequence[Any]") -> "Tensor":
        import torch

        tokens = torch.tensor([encoding.ids for encoding in self.tokenizer.encode_batch(texts)])
        first, named = _arguments(tokens, _padding(self.facts), _separator(self.facts))
        return self.logits(first, **named)


def _strings(column: str, values: "Iterable[object]") -> list[str]:
    """A column's texts.

    Raises:
        ValueError: a row has none, as None in a table; the message has its index.
    """
    texts = list[str]()
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(f"{column} {number}: is {value!r:.40}, not a text")
        texts.append(value)
    return texts


def request(examples: "Sequence[Content]") -> "tuple[dict[str, list[Any]], dict[str, int]]":
    """The texts, a column for each field."""
    columns: dict[str, list[Any]] = {"text": [record.content.decode() for record in examples]}
    if examples[0].others:
        columns["second"] = [record.others["second"].decode() for record in examples]
    return columns, {}


def losses(facts: "Facts", rows: "Mapping[str, Any]", examples: "Sequence[Content]") -> list[float]:
    """The negative logarithm of the label's probability."""
    import math
    import sys

    labels = [facts["labels"].index(str(record.label)) for record in examples]
    pairs = zip(labels, rows["probabilities"], strict=True)
    return [-math.log(max(probabilities[index], sys.float_info.min)) for index, probabilities in pairs]


def losses_by_transformers(
    facts: "Facts", net: "Any", model: "Path", examples: "Sequence[Content]"
) -> tuple[list[float], str]:
    """Scores by the tokenizer and the labels of the model's files."""
    import inspect

    import torch
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    pairs = [[record.content.decode(), *(text.decode() for text in record.others.values())] for record in examples]
    settings = {"truncation": True, "max_length": facts["sequence_length"], "split_special_tokens": True}
    exact = PreTrainedTokenizerFast.from_pretrained(model, local_files_only=True)
    auto = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code="code" in facts)
    tokens, auto_tokens = ([tokenize(*pair, **settings)["input_ids"] for pair in pairs] for tokenize in (exact, auto))
    nats, accepted = list[float](), inspect.signature(net.forward).parameters
    for record, ids in zip(examples, tokens, strict=True):
        first, named = _arguments(torch.tensor([ids]), _padding(facts), _separator(facts))
        with torch.inference_mode():
            logits = net(first, **{name: value for name, value in named.items() if name in accepted}).logits.float()
        label = torch.tensor([net.config.label2id[record.label]])
        nats.append(float(torch.nn.functional.cross_entropy(logits, label)))
    return nats, "" if tokens == auto_tokens else type(auto).__name__
