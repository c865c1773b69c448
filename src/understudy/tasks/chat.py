"""Chat: the assistant's turns of a conversation, token by token, from all turns before them.

Like every task's module, it imports nothing of understudy and nothing heavy at its top: the recipe loads it, and MLflow
stores it with each version.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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

NOUN: str = "conversation"
INPUT: str = "sequence"
TARGETS: str = "tokens"
FIELDS: "Mapping[str, Kind]" = {"messages": "messages"}
LABELLED: bool = False
PACKED: bool = True
PROPOSED_FOR: str = ""
METRICS: tuple[str, ...] = (
    *("bits_per_byte", "perplexity", "nll", "accuracy", "calibration_error"),
    *("exact_match", "f1", "rouge_l", "chrf", "agreement"),
)
SETTINGS: frozenset[str] = frozenset({"data.text", "data.chat", "evaluate.generation", "evaluate.lm_eval"})
AUTO_MODEL: str = "AutoModelForCausalLM"
ARCHITECTURES: str = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
PEFT_TYPE: str | None = "CAUSAL_LM"
LABELS_WEIGHT: float = 0.2
"""That of documents, as the temperature: not chosen by trials on conversations."""
TEMPERATURE: float = 1.0

LOSS_ON = ("assistant", "last", "all")
"""The values of data.chat.loss_on, by their number in the facts' details."""


def check(record: "Raw") -> "Checked | Broken":
    """A conversation alternates between user and assistant, and ends with an answer."""
    from understudy.data.conversations import check_conversation

    return check_conversation(record)


def prepare(
    data: "Data", labels: list[str], records: "Path", batches: "Batches", folder: "Path", like: "Path | None" = None
) -> "Facts":
    """The arrays of data/conversation_arrays.py, with the tokenizer and its chat template."""
    from understudy.data import chat_tokenizer, conversation_arrays
    from understudy.data.served_check import check_served
    from understudy.data.tokenizer import vocabulary_size
    from understudy.recipe.data import Chat, Text

    del labels
    shape, chat = data.text or Text(), data.chat or Chat()
    if like:
        tokenizer, ids = chat_tokenizer.copy(like, folder)
    else:
        tokenizer, ids = chat_tokenizer.write(shape.tokenizer, chat, records, folder)
    length, template = shape.sequence_length, chat_tokenizer.template_of(folder)
    written = conversation_arrays.write(
        batches, conversation_arrays.ChatTokenizer(tokenizer, template, chat, length), folder
    )
    end = written.end if written.end is not None else _first(ids["eos_token_id"])
    chat_tokenizer.write_end(folder, end)
    if written.tokens["test"]:  # further data has no test split
        check_served(records, folder, end, chat.loss_on, chat.train_on_eos, length)
    facts: Facts = {
        "task": "chat",
        "vocab_size": vocabulary_size(tokenizer),
        "eos_id": end,
        "sequence_length": length,
        "special_ids": ids,
        "packing": "documents",
        "tokens": written.tokens,
        "details": {"loss_on": LOSS_ON.index(chat.loss_on), "train_on_eos": int(chat.train_on_eos)},
        "notes": written.notes,
    }
    return facts


def _first(ids: "int | list[int]") -> int:
    return ids[0] if isinstance(ids, list) else ids


def open_split(folder: "Path", split: str, facts: "Facts") -> "Examples":
    """Sequences of whole conversations."""
    from understudy.data.conversation_arrays import ConversationExamples

    return ConversationExamples(folder, split, facts["sequence_length"], facts["eos_id"])


def expected(data: "Data", labels: "Sequence[str]", tokens: int) -> "Facts":
    """Sequences of the recipe's length."""
    from understudy.recipe.data import Text

    del labels
    return {
        "task": "chat",
        "vocab_size": tokens,
        "eos_id": 0,
        "sequence_length": (data.text or Text()).sequence_length,
        "packing": "documents",
    }


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
    """Every learned token is a target."""
    from understudy.data.conversation_split import targets

    return targets(examples, split)


def lengths(examples: "Path") -> "tuple[Integers, Integers]":
    """A conversation is a prediction for each of its learned tokens."""
    from understudy.data.conversation_split import lengths

    return lengths(examples, "test")


def test_split(
    examples: "Path", facts: "Facts", model: "Facts", stride: int | None, records: "Path | None", folder: "Path | None"
) -> "TestSplit":
    """Conversations, the same for every model: a champion has the tokenizer and the template of these examples."""
    from understudy.data.conversation_split import Conversations

    del model, stride, records, folder
    return Conversations(examples, facts["sequence_length"], ends(facts))


SHOWN = 120
"""Tokens of a conversation that a reader is shown."""


def shown(examples: "Path", facts: "Facts", number: int) -> str:
    """The conversation's first tokens, with special tokens."""
    import numpy as np
    from tokenizers import Tokenizer

    del facts
    tokens = np.load(examples / "test.tokens.npy", mmap_mode="r")
    start, end = np.load(examples / "test.offsets.npy", mmap_mode="r")[number : number + 2]
    ids = tokens[start : min(end, start + SHOWN)].tolist()
    text: str = Tokenizer.from_file(str(examples / "tokenizer.json")).decode(ids, skip_special_tokens=False)
    return text


def learned(examples: "Path") -> "list[list[tuple[str, bool]]]":
    """The first conversations of the training split."""
    from understudy.data.conversation_split import parts

    return parts(examples, "train", 3)


OUTPUTS: "Mapping[str, str]" = {"answer": "string", "nll": "double", "tokens": "long"}
"""The answer to a conversation that ends with the user's turn. Of one that ends with an answer, the negative
log-likelihood, in nats, of its learned tokens, and their number: 0 if it is one that training leaves out."""
PARAMS: "Mapping[str, int | float | list[str]]" = {"max_new_tokens": 128, "temperature": 0.0, "stop": []}
"""At a temperature of 0 answers are greedy. They end before any of the texts `stop`."""
LIBRARIES: tuple[str, ...] = ("tokenizers", "transformers", "jinja2")
FILES: "Mapping[str, str]" = {"turns": "understudy.data.served_turns"}
"""Answers are found among the tokens of a conversation as the prepare step has proved that they are."""


def inputs(facts: "Facts") -> dict[str, str]:
    """A conversation."""
    del facts
    return {"messages": "messages"}


def example(facts: "Facts") -> dict[str, list[Any]]:
    """A question."""
    del facts
    return {"messages": [[{"role": "user", "content": "What does len() return?"}]]}


class Predictor:
    """A registered chat model: it answers conversations, and scores the answers that they have."""

    def __init__(
        self,
        facts: "Facts",
        logits: "Callable[[Tensor], Tensor]",
        folder: "Path",
        artifacts: "Mapping[str, str]",
        stride: int | None,
    ) -> None:
        from transformers import PreTrainedTokenizerFast

        del stride
        turns, tokenizer = _module(artifacts["turns"]), PreTrainedTokenizerFast.from_pretrained(folder)
        self.turns, self.loss = turns.ServedTurns(tokenizer, *how(facts)), turns.loss
        self.ends = ends(facts)
        self.length, self._logits, self._vocabulary = facts["sequence_length"], logits, facts["vocab_size"]

    def logits(self, inputs: "Tensor") -> "Tensor":
        """The logits of the tokenizer's tokens; a network may have more outputs than that."""
        return self._logits(inputs)[..., : self._vocabulary]

    def predict(self, model_input: "Any", params: "Mapping[str, Any]") -> dict[str, Any]:
        """A row for each conversation: the answer to its last turn, or the loss of the answers in it."""
        columns: dict[str, list[Any]] = {name: [] for name in OUTPUTS}
        for number, row in enumerate(model_input["messages"]):
            messages = _messages(number, row)
            is_answered = messages[-1]["role"] == "assistant"
            columns["answer"].append("" if is_answered else self._answer(messages, {**PARAMS, **params}))
            nats, count = self._loss(messages) if is_answered else (0.0, 0)
            columns["nll"].append(nats)
            columns["tokens"].append(count)
        return columns

    def _answer(self, messages: list[dict[str, str]], params: "Mapping[str, Any]") -> str:
        import torch

        sequence = self.turns.prompt(messages)
        if len(sequence) >= self.length:
            raise ValueError(f"the conversation has {len(sequence):,} tokens, and the model reads {self.length:,}")
        start, stops = len(sequence), [stop for stop in params["stop"] if stop]
        for _ in range(min(params["max_new_tokens"], self.length - start)):
            following = _next(self.logits(torch.tensor([sequence]))[0, -1], params["temperature"])
            if following in self.ends:
                break
            sequence.append(following)
            text = self.turns.decoded(sequence[start:]) if stops else ""
            if places := [text.index(stop) for stop in stops if stop in text]:
                return text[: min(places)]
        answer: str = self.turns.decoded(sequence[start:])
        return answer

    def _loss(self, messages: list[dict[str, str]]) -> tuple[float, int]:
        ids, learned = self.turns.learned(messages, self.length + 1)
        return self.loss(ids, learned, self.logits), sum(learned)


def _messages(number: int, row: Any) -> list[dict[str, str]]:
    """A row's conversation.

    Raises:
        ValueError: it has no turn, or one whose role or content is no text.
    """
    if row is None or len(row) == 0:
        raise ValueError(f"conversation {number} is empty; give at least the user's turn")
    messages = [{key: message.get(key) for key in ("role", "content")} for message in row]
    for turn, message in enumerate(messages, 1):
        for key, value in message.items():
            if not isinstance(value, str):
                raise ValueError(f"conversation {number}: the {key} of turn {turn} is {value!r}, not a text")
    return messages


def _module(path: str) -> Any:
    """The version's own copy of data/served_turns.py."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("understudy_turns", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ends(facts: "Facts") -> frozenset[int]:
    """The tokens that end an answer."""
    ids = facts.get("special_ids", {}).get("eos_token_id", [])
    return frozenset({facts["eos_id"], *(ids if isinstance(ids, list) else [ids])})


def how(facts: "Facts") -> tuple[int, str, bool]:
    """The token that ends an answer, the tokens that are learned, and whether that one is."""
    details = facts.get("details", {})
    return facts["eos_id"], LOSS_ON[details.get("loss_on", 0)], bool(details.get("train_on_eos", 1))


def _next(logits: "Tensor", temperature: float) -> int:
    import torch

    if temperature <= 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(dim=-1), 1))


def request(examples: "Sequence[Content]") -> "tuple[dict[str, list[Any]], dict[str, int]]":
    """The conversations, whose answers are scored."""
    import json

    return {"messages": [json.loads(record.content) for record in examples]}, {}


def losses(facts: "Facts", rows: "Mapping[str, Any]", examples: "Sequence[Content]") -> list[float]:
    """The losses of the response."""
    del facts, examples
    return [float(loss) for loss in rows["nll"]]


def losses_by_transformers(
    facts: "Facts", net: "Any", model: "Path", examples: "Sequence[Content]"
) -> tuple[list[float], str]:
    """Scores as in docs/using/chat.md, by the tokenizer and the template of the model's files."""
    import json

    import torch
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from understudy.data.served_turns import ServedTurns, loss

    def logits(inputs: "Tensor") -> "Tensor":
        with torch.inference_mode():
            rows: Tensor = net(inputs).logits[..., : facts["vocab_size"]].float()
        return rows

    conversations = [json.loads(record.content) for record in examples]
    exact = PreTrainedTokenizerFast.from_pretrained(model, local_files_only=True)
    auto = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code="code" in facts)
    most = facts["sequence_length"] + 1
    turns = (ServedTurns(tokenizer, *how(facts)) for tokenizer in (exact, auto))
    learned, by_auto = ([kind.learned(row, most) for row in conversations] for kind in turns)
    losses = [loss(*pair, logits) for pair in learned]
    return losses, "" if learned == by_auto else type(auto).__name__
