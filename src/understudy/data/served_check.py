"""The check, before any training, that a registered version will see the tokens that training and the gate see.

transformers renders templates and encodes texts by a tokenizer's files; preparation does so with bounds and proofs of
its own. A file that only one of them obeys would show after all trainings, when the version's scores differ.
"""

from pathlib import Path

import numpy as np

from understudy.data.chat_turn import quoted
from understudy.data.conversations import messages
from understudy.data.records import at
from understudy.data.served_turns import ServedTurns
from understudy.errors import InputError

CONVERSATIONS = 32
"""Maximum number of test conversations that are compared."""


def check_served(records: Path, folder: Path, end: int, loss_on: str, train_on_eos: bool, length: int) -> None:
    """Compare some test conversations' tokens with those of transformers.

    Args:
        records: the folder of a `records` object.
        folder: the examples with their tokenizer's files.
        end: the token that ends an answer.
        loss_on: data.chat.loss_on.
        train_on_eos: data.chat.train_on_eos.
        length: the most tokens that a sequence of inputs has.

    Raises:
        InputError: they differ.
    """
    from transformers import PreTrainedTokenizerFast

    turns = ServedTurns(PreTrainedTokenizerFast.from_pretrained(folder), end, loss_on, train_on_eos)
    offsets = np.load(folder / "test.offsets.npy")
    tokens, learned = (np.load(folder / f"test.{name}.npy", mmap_mode="r") for name in ("tokens", "learned"))
    chosen = np.unique(np.linspace(0, len(offsets) - 2, CONVERSATIONS).astype(int)).tolist()
    for index, record in zip(chosen, at(records, "test", chosen), strict=True):
        conversation = messages(record.content)
        part = slice(*offsets[index : index + 2])
        ids, mask = turns.learned(conversation, length + 1)
        if ids != tokens[part].tolist() or mask != learned[part].tolist():
            begin = next(turn["content"] for turn in conversation if turn["role"] == "user")
            raise InputError(
                f"data.chat: servers would see other tokens of the conversation that begins with {quoted(begin)} than "
                "training: transformers reads the tokenizer's files in another way. Give another template or tokenizer."
            )
