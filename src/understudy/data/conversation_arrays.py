"""Conversations as arrays: the tokens of each, which of them are learned, and sequences of whole conversations.

SPLIT.tokens.npy has the tokens of all conversations end to end, SPLIT.offsets.npy, int64 (N + 1,), where each begins,
SPLIT.learned.npy, bool, which tokens are targets, SPLIT.bytes.npy, int64 (N,), the bytes of the learned turns, and
SPLIT.answer_begins.npy and SPLIT.answer_ends.npy, int64 (N,), the place of its last answer among a conversation's
tokens, 0 if that is not proved. A conversation's first token is context, never a target. One that is left out has no
tokens, so that the index of an example stays that of its record.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from understudy.data.chat_mask import ChatEncoder, CrossesBoundary, Rendered, SpecialTokenInText, Text
from understudy.data.chat_template import ChatTemplate, Message
from understudy.data.chat_turn import quoted
from understudy.data.conversations import Turn, messages
from understudy.data.loader import IGNORED, Indices, PackedExamples
from understudy.data.npy import NpyFile
from understudy.data.packing import best_fit
from understudy.data.raw import SPLITS, Split
from understudy.data.records import Content
from understudy.data.served_turns import NEUTRAL
from understudy.errors import InputError
from understudy.recipe.data import Chat


@dataclass(frozen=True, eq=False)
class ChatTokenizer:
    """How conversations become tokens."""

    tokenizer: Any
    """A tokenizers.Tokenizer, from chat_mask.chat_tokenizer()."""
    template: ChatTemplate
    settings: Chat
    length: int
    """The most tokens that a sequence of inputs has."""

    @cached_property
    def encoder(self) -> ChatEncoder:
        """Conversations as tokens, and which of them are learned."""
        return ChatEncoder(self.template, self.tokenizer, self.settings.loss_on, self.settings.train_on_eos)

    @cached_property
    def special(self) -> frozenset[int]:
        """The ids of special tokens."""
        added = self.tokenizer.get_added_tokens_decoder().items()
        return frozenset(number for number, token in added if token.special)


class Written(NamedTuple):
    """The outcome of writing the arrays."""

    end: int | None
    """The token that ends a learned turn; None if none does."""
    tokens: dict[str, int]
    """The number of tokens by split."""
    notes: list[str]


class _Encoded(NamedTuple):
    ids: list[int]
    learned: list[bool]
    end: int | None
    size: int
    """Bytes of the learned turns."""
    remark: str
    """Why it was cut or left out; empty if it was not."""
    answer: tuple[int, int] = (0, 0)
    """Where the last answer begins and ends."""


PORTION = 2**22
"""Bytes of conversations after which no further one is encoded at the same time."""
ANSWERS = ("answer_begins", "answer_ends")
CUT, TOO_LONG, SPECIAL, CROSSES = "cut", "too long", "special", "crosses"


def write(batches: Iterator[list[Content]], chat: ChatTokenizer, folder: Path) -> Written:
    """Write the arrays of all splits, in the records' order, and the packing of the training and validation split.

    Raises:
        InputError: the template fails, the learned tokens of a conversation cannot be proved, or all of a split is
            left out.
    """
    remarks, ends = Counter[str](), Counter[int | None]()
    with _Arrays(folder, chat.tokenizer.get_vocab_size()) as arrays:
        for batch, conversations in _encoded_batches(batches, chat):
            arrays.append(batch, conversations)
            remarks.update(encoded.remark for encoded in conversations)
            ends.update(encoded.end for encoded in conversations if encoded.ids)
    notes = _notes(remarks, chat.length)
    if empty := [split for split in SPLITS if arrays.records[split] and not arrays.tokens[split]]:
        raise InputError("\n".join(f"data.chat: nothing is left of the {empty[0]} split: {note}" for note in notes))
    for split in ("train", "validation"):
        _write_packed(folder, split, chat.length)
    return Written(ends.most_common(1)[0][0], arrays.tokens, notes)


class _Arrays(ExitStack):
    """The open files of all splits."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        super().__init__()
        self.tokens: dict[str, int] = dict.fromkeys(SPLITS, 0)
        """The number of tokens so far, and of records, those that are left out included."""
        self.records: dict[str, int] = dict.fromkeys(SPLITS, 0)
        kinds = {"tokens": np.uint16 if vocabulary <= 2**16 else np.uint32, "learned": np.bool_}
        self._files = {
            (split, name): self.enter_context(NpyFile(folder / f"{split}.{name}.npy", kind))
            for split in SPLITS
            for name, kind in {**kinds, **dict.fromkeys(("offsets", "bytes", *ANSWERS), np.int64)}.items()
        }
        for split in SPLITS:
            self._files[split, "offsets"].append(np.array([0]))

    def append(self, batch: Sequence[Content], conversations: Sequence[_Encoded]) -> None:
        """Add conversations, each to its record's split."""
        for split in SPLITS:
            added = [encoded for row, encoded in zip(batch, conversations, strict=True) if row.split == split]
            ends = self.tokens[split] + np.cumsum([0, *(len(encoded.ids) for encoded in added)])
            self.records[split] += len(added)
            self.tokens[split] = int(ends[-1])
            self._append(split, "tokens", np.int64, [id_ for encoded in added for id_ in encoded.ids])
            self._append(split, "learned", np.bool_, [learned for encoded in added for learned in encoded.learned])
            self._append(split, "offsets", np.int64, ends[1:])
            self._append(split, "bytes", np.int64, [encoded.size for encoded in added])
            for part, name in enumerate(ANSWERS):
                self._append(split, name, np.int64, [encoded.answer[part] for encoded in added])

    def _append(self, split: Split, name: str, kind: DTypeLike, values: Any) -> None:
        self._files[split, name].append(np.array(values, kind))


_Batch = tuple[list[Content], list[list[Turn]], list[Text | InputError], "Future[list[list[int]]]"]


def _encoded_batches(
    batches: Iterable[list[Content]], chat: ChatTokenizer
) -> Iterator[tuple[list[Content], list[_Encoded]]]:
    """Each batch with its conversations; the next one's texts are encoded while this one's tokens are proved."""
    with ThreadPoolExecutor(1) as thread:
        previous: _Batch | None = None
        for batch in _portions(batches):
            conversations = [messages(record.content) for record in batch]
            texts = [_text(turns, chat) for turns in conversations]
            valid = [text.text for text in texts if isinstance(text, Text)]
            following = batch, conversations, texts, thread.submit(chat.encoder.ids, valid)
            if previous:
                yield previous[0], _proved(*previous[1:], chat)
            previous = following
        if previous:
            yield previous[0], _proved(*previous[1:], chat)


def _portions(batches: Iterable[list[Content]]) -> Iterator[list[Content]]:
    """Batches that end after PORTION bytes: a token takes a hundred times its bytes while it is encoded."""
    for batch in batches:
        portion, size = list[Content](), 0
        for record in batch:
            portion.append(record)
            size += len(record.content)
            if size >= PORTION:
                yield portion
                portion, size = [], 0
        if portion:
            yield portion


def _text(turns: list[Turn], chat: ChatTokenizer) -> Text | InputError:
    """The text of a conversation, or why it has none, to be raised in the order of the conversations."""
    try:
        return chat.encoder.text(turns)
    except InputError as error:
        return error


def _proved(
    conversations: list[list[Turn]],
    texts: list[Text | InputError],
    encoding: "Future[list[list[int]]]",
    chat: ChatTokenizer,
) -> list[_Encoded]:
    ids = iter(encoding.result())
    return [
        _encoded(turns, text if isinstance(text, InputError) else chat.encoder.encoded(turns, text, next(ids)), chat)
        for turns, text in zip(conversations, texts, strict=True)
    ]


def _encoded(turns: list[Turn], rendered: Rendered | InputError, chat: ChatTokenizer) -> _Encoded:
    """A conversation, cut to the length of a sequence.

    Raises:
        InputError: the template fails, or it is not proved which tokens are learned.
    """
    try:
        if isinstance(rendered, InputError):
            raise rendered
        beginning = chat.encoder.cut(rendered, chat.length + 1)
        if beginning is None:
            return _left_out(TOO_LONG)
        ids, learned, end, answer = chat.encoder.masked(beginning)
        kept = beginning.messages
        if _special(chat, ids) != special_tokens(chat, tuple(turn["role"] for turn in kept)):
            return _left_out(SPECIAL)  # made of several texts, or by the tokenizer's normalisation
    except SpecialTokenInText:
        return _left_out(SPECIAL)
    except CrossesBoundary:
        return _left_out(CROSSES)
    except InputError as error:
        begin = next(turn["content"] for turn in turns if turn["role"] == "user")
        raise InputError(f"data.chat: in the conversation that begins with {quoted(begin)}: {error}") from error
    size = learned_bytes(kept, chat.settings.loss_on)
    return _Encoded(ids, learned, end, size, CUT if len(kept) < len(turns) else "", answer)


@lru_cache(maxsize=256)
def special_tokens(chat: ChatTokenizer, roles: tuple[str, ...]) -> list[int]:
    """The special tokens of a conversation whose messages have none."""
    text = chat.template.render([{"role": role, "content": NEUTRAL} for role in roles], add_generation_prompt=False)
    return _special(chat, chat.tokenizer.encode(text, add_special_tokens=False).ids)


def _special(chat: ChatTokenizer, ids: list[int]) -> list[int]:
    return [id_ for id_ in ids if id_ in chat.special]


def _left_out(remark: str) -> _Encoded:
    return _Encoded([], [], None, 0, remark)


def learned_bytes(turns: Sequence[Message], loss_on: str) -> int:
    """The UTF-8 bytes of the turns whose tokens are learned."""
    answers = [message["content"] for message in turns if loss_on == "all" or message["role"] == "assistant"]
    return sum(len(text.encode()) for text in (answers[-1:] if loss_on == "last" else answers))


def _notes(remarks: Counter[str], length: int) -> list[str]:
    setting = f"{length} tokens (data.text.sequence_length)"
    words = {
        CUT: f"cut after the last answer that fits {setting}",
        TOO_LONG: f"left out, since their first answer does not end within {setting}",
        CROSSES: "left out, since a token has the end of the prompt and the beginning of the answer",
        SPECIAL: "left out, since a message has the text of a special token, which would end its turn",
    }
    total = sum(remarks.values())
    return [f"{remarks[name]:,} of {total:,} conversations {why}" for name, why in words.items() if remarks[name]]


def _write_packed(folder: Path, split: str, length: int) -> None:
    """Write the packing of whole conversations into sequences, as packing.py does, and each sequence's targets."""
    offsets, learned = np.load(folder / f"{split}.offsets.npy"), np.load(folder / f"{split}.learned.npy")
    sums = np.concatenate([[0], np.cumsum(learned)])
    counts = np.diff(sums[offsets])
    is_learned = counts > 0
    pieces = np.stack([offsets[:-1] + 1, np.diff(offsets) - 1], 1)[is_learned]
    sequence = best_fit(pieces[:, 1], length)
    order = np.argsort(sequence, kind="stable")
    sequences = np.cumsum(np.bincount(sequence + 1, minlength=1))
    targets = np.bincount(sequence, weights=counts[is_learned], minlength=len(sequences) - 1)
    np.save(folder / f"{split}.pieces.npy", pieces[order])
    np.save(folder / f"{split}.sequences.npy", sequences)
    np.save(folder / f"{split}.targets.npy", targets.astype(np.int64))


class ConversationExamples(PackedExamples):
    """Sequences of whole conversations: inputs int64 (B, L), labels the tokens that follow, if they are learned."""

    def __init__(self, folder: Path, split: str, length: int, eos: int) -> None:
        super().__init__(folder, split, length, eos, eos)
        self._learned = np.load(folder / f"{split}.learned.npy", mmap_mode="r")
        self._learned_targets = np.load(folder / f"{split}.targets.npy")

    def _labels(self, targets: Indices) -> Indices:
        return np.where(self._learned[targets], super()._labels(targets), IGNORED)

    def targets(self, indices: Indices) -> int:
        """The number of learned tokens of these sequences together."""
        return int(self._learned_targets[indices].sum())
