"""Token classification: one of a fixed set of labels for each word of a text.

The words of a text have spaces between them, and so have their labels. A word's label is predicted at its first token;
its other tokens have none (Devlin et al. 2019, section 5.3).

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
TARGETS: str = "words"
FIELDS: "Mapping[str, Kind]" = {"words": "text", "labels": "text"}
LABELLED: bool = False
PACKED: bool = False
PROPOSED_FOR: str = ""
METRICS: tuple[str, ...] = ("accuracy", "nll", "calibration_error")
SETTINGS: frozenset[str] = frozenset({"data.text", "model.labels"})
AUTO_MODEL: str = "AutoModelForTokenClassification"
ARCHITECTURES: str = "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES"
PEFT_TYPE: str | None = "TOKEN_CLS"
LABELS_WEIGHT: float = 0.3
"""That of images, as the temperature: not chosen by trials on words."""
TEMPERATURE: float = 2.0

BATCH = 64  # texts


def check(record: "Raw") -> "Checked | Broken":
    """A text is in UTF-8 and has a label for each word; texts of the same words are in one split."""
    from understudy.data.words import check_words

    return check_words(record)


def prepare(
    data: "Data", labels: list[str], records: "Path", batches: "Batches", folder: "Path", like: "Path | None" = None
) -> "Facts":
    """The arrays of data/word_arrays.py.

    Texts that are too long are truncated, and the words that are cut have no label.
    """
    from understudy.data import labels as spellings
    from understudy.data import padded_tokenizer, word_arrays, words
    from understudy.data.tokenizer import vocabulary_size
    from understudy.models.facts import read_facts
    from understudy.recipe.data import Text

    shape = data.text or Text()
    length = shape.sequence_length
    labels = read_facts(like)["labels"] if like else words.training_labels(records)
    words.check_labels(records, labels, "data_sets" if like else "data.source")
    if like:
        tokenizer, padding = padded_tokenizer.copy(like, folder)
    else:
        tokenizer, padding = padded_tokenizer.write(shape.tokenizer, words.training_texts(records), folder)
    word_arrays.pad(tokenizer, padding, length)
    notes = word_arrays.write(batches, tokenizer, first_tokens, labels, length, folder)
    return {
        "task": "token-classification",
        "labels": labels,
        "vocab_size": vocabulary_size(tokenizer),
        "sequence_length": length,
        "special_ids": {"pad_token_id": padding},
        "notes": [*spellings.lookalikes(labels), *notes],
    }


def first_tokens(text: str, encoding: Any) -> list[int | None]:
    """The index of each word's first token; None for a word that has none.

    Args:
        text: words with a space between two.
        encoding: its tokens, a tokenizers.Encoding. A token may begin with the space before its word.
    """
    from bisect import bisect_right
    from itertools import accumulate

    words = text.split(" ")
    starts = [0, *accumulate(len(word) + 1 for word in words[:-1])]
    firsts: list[int | None] = [None] * len(words)
    tokens = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    for index, ((start, end), is_special) in enumerate(tokens):
        if not is_special and end > start:
            word = bisect_right(starts, end - 1) - 1
            if firsts[word] is None:
                firsts[word] = index
    return firsts


def open_split(folder: "Path", split: str, facts: "Facts") -> "Examples":
    """Texts, each with the labels of its words."""
    from understudy.data.word_arrays import WordExamples

    del facts
    return WordExamples(folder, split)


def expected(data: "Data", labels: "Sequence[str]", tokens: int) -> "Facts":
    """Texts of the recipe's length."""
    from understudy.recipe.data import Text

    return {
        "task": "token-classification",
        "labels": list(labels),
        "vocab_size": tokens,
        "sequence_length": (data.text or Text()).sequence_length,
    }


def blank(facts: "Facts", count: int) -> "tuple[Tensor, Tensor]":
    """Texts of one token over and over, each of which has the first label."""
    import torch

    shape = count, facts["sequence_length"]
    return torch.zeros(shape, dtype=torch.int32), torch.zeros(shape, dtype=torch.int64)


def wrap(net: "nn.Module", facts: "Facts") -> "nn.Module":
    """Padded tokens to a logit for each label, at each token."""
    from functools import partial

    from understudy.models.tasks import ClassifierModel

    config: Any = getattr(net, "config", None)
    if getattr(config, "pad_token_id", 0) is None:  # of a plan, before there is a tokenizer
        config.pad_token_id = _padding(facts)
    return ClassifierModel(net, partial(_arguments, padding=_padding(facts)))


def _padding(facts: "Facts") -> int:
    return facts.get("special_ids", {}).get("pad_token_id", 0)


def _arguments(tokens: "Tensor", padding: int) -> "tuple[Tensor, Mapping[str, Tensor]]":
    """The arguments of a network of transformers for padded tokens (B, L) of any integer type."""
    tokens = tokens.long()
    return tokens, {"attention_mask": (tokens != padding).long()}


def targets(examples: "Path", split: str) -> "NDArray[Any]":
    """The label of every word that has a token."""
    from understudy.data.word_arrays import targets

    return targets(examples, split)


def lengths(examples: "Path") -> "tuple[Integers, Integers]":
    """A text is a prediction for each word that has a token."""
    from understudy.data.word_arrays import lengths

    return lengths(examples, "test")


def test_split(
    examples: "Path", facts: "Facts", model: "Facts", stride: int | None, records: "Path | None", folder: "Path | None"
) -> "TestSplit":
    """Texts, the same for every model: a champion has the tokenizer of these examples."""
    from understudy.data.word_arrays import Words

    del facts, model, stride, records, folder
    return Words(examples)


def shown(examples: "Path", facts: "Facts", number: int) -> str:
    """The text as its model sees it, and the labels of its words."""
    from understudy.data.word_arrays import shown

    return shown(examples, number, facts["labels"], _padding(facts))


def learned(examples: "Path") -> "list[list[tuple[str, bool]]]":
    """Nothing to show: all of an example is learned."""
    del examples
    return []


OUTPUTS: "Mapping[str, str]" = {"labels": "strings", "probabilities": "doubles"}
"""A label for each word, empty for one that has no token; and the probability of each label, word after word, for the
words that have one."""
PARAMS: "Mapping[str, int]" = {}
LIBRARIES: tuple[str, ...] = ("tokenizers",)
FILES: "Mapping[str, str]" = {}


def inputs(facts: "Facts") -> dict[str, str]:
    """Words with spaces between them."""
    del facts
    return {"words": "string"}


def example(facts: "Facts") -> dict[str, list[str]]:
    """A short text."""
    del facts
    return {"words": ["It is as good as new ."]}


class Predictor:
    """A registered classifier of words."""

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
        """A row for each text: labels, probabilities."""
        del params
        columns: dict[str, list[Any]] = {name: [] for name in OUTPUTS}
        texts = [" ".join(text.split()) for text in _strings("words", model_input["words"])]
        for start in range(0, len(texts), BATCH):
            for labels, probabilities in self._answers(texts[start : start + BATCH]):
                columns["labels"].append(labels)
                columns["probabilities"].append(probabilities)
        return columns

    def _answers(self, texts: list[str]) -> "Iterator[tuple[list[str], list[float]]]":
        import torch

        encodings = self.tokenizer.encode_batch(texts)
        first, named = _arguments(torch.tensor([encoding.ids for encoding in encodings]), _padding(self.facts))
        probabilities = self.logits(first, **named).double().softmax(dim=-1)
        for row, text, encoding in zip(probabilities, texts, encodings, strict=True):
            firsts = first_tokens(text, encoding) if text else []
            best = row.argmax(dim=-1).tolist()
            labels = ["" if first is None else self.facts["labels"][best[first]] for first in firsts]
            yield labels, row[[first for first in firsts if first is not None]].flatten().tolist()


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
    """The words."""
    return {"words": [record.content.decode() for record in examples]}, {}


def losses(facts: "Facts", rows: "Mapping[str, Any]", examples: "Sequence[Content]") -> list[float]:
    """The negative logarithms of the probabilities of a text's labels, summed."""
    import math
    import sys

    from understudy.data.words import labels_of

    sums, width, index = list[float](), len(facts["labels"]), facts["labels"].index
    for record, answers, flat in zip(examples, rows["labels"], rows["probabilities"], strict=True):
        labels = [label for label, answer in zip(labels_of(record), answers, strict=True) if answer]
        probabilities = [flat[number * width + index(label)] for number, label in enumerate(labels)]
        sums.append(-sum(math.log(max(probability, sys.float_info.min)) for probability in probabilities))
    return sums


def losses_by_transformers(
    facts: "Facts", net: "Any", model: "Path", examples: "Sequence[Content]"
) -> tuple[list[float], str]:
    """Scores by the tokenizer and the labels of the model's files."""
    import inspect

    import torch
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from understudy.data.words import labels_of, text_of

    texts = [text_of(record) for record in examples]
    settings = {"truncation": True, "max_length": facts["sequence_length"], "split_special_tokens": True}
    exact = PreTrainedTokenizerFast.from_pretrained(model, local_files_only=True)
    auto = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code="code" in facts)
    encodings = [exact(text, **settings).encodings[0] for text in texts]
    nats, accepted = list[float](), inspect.signature(net.forward).parameters
    for record, text, encoding in zip(examples, texts, encodings, strict=True):
        first, named = _arguments(torch.tensor([encoding.ids]), _padding(facts))
        with torch.inference_mode():
            logits = net(first, **{name: value for name, value in named.items() if name in accepted}).logits[0].float()
        pairs = zip(labels_of(record), first_tokens(text, encoding), strict=True)
        targets = {first: net.config.label2id[label] for label, first in pairs if first is not None}
        ids = torch.tensor([*targets.values()], dtype=torch.long)
        nats.append(float(torch.nn.functional.cross_entropy(logits[[*targets]], ids, reduction="sum")))
    alike = [encoding.ids for encoding in encodings] == [auto(text, **settings)["input_ids"] for text in texts]
    return nats, "" if alike else type(auto).__name__
