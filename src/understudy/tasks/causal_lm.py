"""Causal language modelling: every token of a document, from those before it.

Like every task's module, it imports nothing of understudy and nothing heavy at its top: the recipe loads it, and MLflow
stores it with each version.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
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

NOUN: str = "document"
INPUT: str = "sequence"
TARGETS: str = "tokens"
FIELDS: "Mapping[str, Kind]" = {"text": "text"}
LABELLED: bool = False
PACKED: bool = False
PROPOSED_FOR: str = "documents"
METRICS: tuple[str, ...] = ("bits_per_byte", "perplexity", "nll", "accuracy", "calibration_error")
SETTINGS: frozenset[str] = frozenset({"data.text", "data.text.packing", "evaluate.stride", "evaluate.lm_eval"})
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


def prepare(
    data: "Data", labels: list[str], records: "Path", batches: "Batches", folder: "Path", like: "Path | None" = None
) -> "Facts":
    """Tokens of all documents end to end; with packing, the sequences that whole documents fill.

    Training reads sequences; the test split is read document by document.
    """
    from understudy.data.packing import write_packed
    from understudy.data.token_arrays import copy_tokenizer, write_tokenizer, write_tokens
    from understudy.recipe.data import Text

    del labels
    shape = data.text or Text()
    tokenizer_file = copy_tokenizer(like, folder) if like else write_tokenizer(shape.tokenizer, records, folder)
    facts: Facts = {
        "task": "causal-lm",
        "vocab_size": tokenizer_file.size,
        "eos_id": tokenizer_file.end,
        "sequence_length": shape.sequence_length,
        "tokens": write_tokens(tokenizer_file, batches, folder),
    }
    if tokenizer_file.first is not None and tokenizer_file.first != tokenizer_file.end:
        facts["bos_id"] = tokenizer_file.first
    if tokenizer_file.special is not None:
        facts["special_ids"] = tokenizer_file.special
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


def expected(data: "Data", labels: "Sequence[str]", tokens: int) -> "Facts":
    """Sequences of the recipe's length."""
    from understudy.recipe.data import Text

    del labels
    shape = data.text or Text()
    facts: Facts = {
        "task": "causal-lm",
        "vocab_size": tokens,
        "eos_id": 0,
        "sequence_length": shape.sequence_length,
    }
    if shape.packing == "documents":
        facts["packing"] = "documents"
    return facts


def blank(facts: "Facts", count: int) -> "tuple[Tensor, Tensor]":
    """Sequences of one token over and over, each of which is followed by it."""
    import torch

    shape = count, facts["sequence_length"]
    return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)


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


def learned(examples: "Path") -> "list[list[tuple[str, bool]]]":
    """Nothing to show: all of an example is learned."""
    del examples
    return []


OUTPUTS: "Mapping[str, str]" = {"completion": "string", "bits_per_byte": "double"}
PARAMS: "Mapping[str, int]" = {"max_new_tokens": 32}
LIBRARIES: tuple[str, ...] = ("tokenizers",)
FILES: "Mapping[str, str]" = {}


def inputs(facts: "Facts") -> dict[str, str]:
    """A text."""
    del facts
    return {"text": "string"}


def example(facts: "Facts") -> dict[str, list[str]]:
    """The beginning of a text."""
    del facts
    return {"text": ["Return the"]}


class Predictor:
    """A registered language model: greedy completions of texts, and the model's bits per byte for them."""

    def __init__(
        self,
        facts: "Facts",
        logits: "Callable[[Tensor], Tensor]",
        folder: "Path",
        artifacts: "Mapping[str, str]",
        stride: int | None,
    ) -> None:
        from tokenizers import Tokenizer

        del artifacts
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        # As in data/tokenizer.py. The file lacks these settings, or has its maker's. If a special token's name in a
        # text were encoded as that token, a prompt could end the text or open another speaker's turn.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True
        self.end, self.length = facts["eos_id"], facts["sequence_length"]
        self.first = facts.get("bos_id", self.end)
        self.stride = stride or self.length
        self._logits, self._vocabulary = logits, facts["vocab_size"]

    def logits(self, inputs: "Tensor") -> "Tensor":
        """The logits of the tokenizer's tokens; a network may have more outputs than that."""
        return self._logits(inputs)[..., : self._vocabulary]

    def predict(self, model_input: "Any", params: "Mapping[str, Any]") -> dict[str, Any]:
        """A row for each text: its greedy completion, and the model's bits per byte for the text."""
        columns: dict[str, list[Any]] = {name: [] for name in OUTPUTS}
        for text in _strings("text", model_input["text"]):
            tokens = self.tokenizer.encode(text, add_special_tokens=False).ids
            columns["completion"].append(self._completion(tokens, params["max_new_tokens"]))
            columns["bits_per_byte"].append(self._bits(tokens) / max(len(text.encode()), 1))
        return columns

    def _completion(self, tokens: list[int], count: int) -> str:
        import torch

        sequence = [self.first, *tokens]
        for _ in range(count):
            following = int(self.logits(torch.tensor([sequence[-self.length :]]))[0, -1].argmax())
            if following == self.end:
                break
            sequence.append(following)
        return str(self.tokenizer.decode(sequence[1 + len(tokens) :]))

    def _bits(self, tokens: list[int]) -> float:
        """The bits of the text and its end token, by windows, counted as in understudy's evaluation."""
        import math

        import torch

        inputs, targets = torch.tensor([self.first, *tokens]), torch.tensor([*tokens, self.end])
        nats, counted = 0.0, 0
        while counted < len(targets):
            end = min(counted + (self.stride if counted else self.length), len(targets))
            start = counted if self.stride == self.length else max(end - self.length, 0)
            logits = self.logits(inputs[None, start:end])[0, counted - start :]
            nats += float(torch.nn.functional.cross_entropy(logits, targets[counted:end], reduction="sum"))
            counted = end
        return nats / math.log(2)


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
    """The texts, without completions."""
    return {"text": [record.content.decode() for record in examples]}, {"max_new_tokens": 0}


def losses(facts: "Facts", rows: "Mapping[str, Any]", examples: "Sequence[Content]") -> list[float]:
    """The negative log-likelihood of each text, in nats, from the served bits per byte."""
    import math

    del facts
    sizes = [max(len(record.content), 1) for record in examples]
    return [math.log(2) * float(bits) * size for size, bits in zip(sizes, rows["bits_per_byte"], strict=True)]


def losses_by_transformers(
    facts: "Facts", net: "Any", model: "Path", examples: "Sequence[Content]"
) -> tuple[list[float], str]:
    """Scores as in docs/using/serving.md; windows share no context."""
    import torch

    texts = [record.content.decode() for record in examples]
    tokenizer, tokenizer_name = _tokenizer(facts, model, texts)
    end, length, nats = facts["eos_id"], facts["sequence_length"], list[float]()
    for text in texts:
        ids = _ids(tokenizer, text)
        inputs, targets = torch.tensor([facts.get("bos_id", end), *ids]), torch.tensor([*ids, end])
        total = 0.0
        for window, window_targets in zip(torch.split(inputs, length), torch.split(targets, length), strict=True):
            with torch.inference_mode():
                logits = net(window[None]).logits[0, :, : facts["vocab_size"]].float()
            total += float(torch.nn.functional.cross_entropy(logits, window_targets, reduction="sum"))
        nats.append(total)
    return nats, tokenizer_name


def _tokenizer(facts: "Facts", model: "Path", texts: list[str]) -> tuple[Any, str]:
    """AutoTokenizer's tokenizer; if its tokens differ, that of tokenizer.json, and the name of the former's class.

    For some architectures transformers replaces any tokenizer with its own.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    exact = PreTrainedTokenizerFast.from_pretrained(model, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code="code" in facts)
    if all(_ids(tokenizer, text) == _ids(exact, text) for text in texts):
        return tokenizer, ""
    return exact, type(tokenizer).__name__


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    return ids
