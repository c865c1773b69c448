"""The tokenizer of a data set, and its documents as arrays of tokens, a file of each per split."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from understudy.data import tokenizer as tokenizers
from understudy.data import tokenizer_files
from understudy.data.npy import NpyFile
from understudy.data.raw import SPLITS
from understudy.data.records import Content, read
from understudy.models.facts import TOKENIZER, SpecialIds, read_facts
from understudy.recipe.data import Tokenizer


class DataTokenizer(NamedTuple):
    """A tokenizer, and the ids of its special tokens."""

    tokenizer: Any
    """A tokenizers.Tokenizer."""
    size: int
    """The size of its vocabulary."""
    end: int
    """Its end-of-text token."""
    first: int | None
    """The token that it adds before a text, if it adds one."""
    special: SpecialIds | None
    """Special tokens of a pretrained tokenizer, for servers."""


def write_tokenizer(section: Tokenizer, records: Path, folder: Path) -> DataTokenizer:
    """Train a tokenizer on the training split, or read a pretrained one; write it and the files beside it.

    Args:
        section: the recipe's.
        records: the folder of a `records` object.
        folder: output folder.

    Raises:
        InputError: the pretrained tokenizer is not available, loses text, or has a damaged file beside it.
    """
    ids = None
    if section.pretrained is None:
        tokenizer = tokenizers.train(_documents(records), section.vocab_size)
        end, first = tokenizer.token_to_id(tokenizers.END_OF_TEXT), None
        beside = tokenizer_files.of_trained()
    else:
        tokenizer, end, first = tokenizers.pretrained(section)
        tokenizers.check_lossless(section, tokenizer, _documents(records))
        beside, ids = tokenizer_files.of_pretrained(section, tokenizer, end)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    tokenizer_files.write(folder, beside)
    return DataTokenizer(tokenizer, tokenizers.vocabulary_size(tokenizer), end, first, ids)


def copy_tokenizer(examples: Path, folder: Path) -> DataTokenizer:
    """Copy the tokenizer of other examples, with the files beside it, and return it."""
    tokenizer_files.copy(examples, folder)
    facts = read_facts(examples)
    tokenizer = tokenizers.load(examples / TOKENIZER)
    return DataTokenizer(tokenizer, facts["vocab_size"], facts["eos_id"], facts.get("bos_id"), facts.get("special_ids"))


def _documents(records: Path) -> Iterator[str]:
    """The documents of the training split."""
    return (row.content.decode() for batch in read(records, "train") for row in batch)


def write_tokens(tokenizer: DataTokenizer, batches: Iterator[list[Content]], folder: Path) -> dict[str, int]:
    """Write SPLIT.tokens.npy, with the end-of-text token after each document, SPLIT.offsets.npy and SPLIT.bytes.npy.

    Args:
        tokenizer: the tokenizer.
        batches: the records.
        folder: output folder.

    Returns:
        The number of tokens by split.
    """
    offset: dict[str, int] = dict.fromkeys(SPLITS, 0)
    with ExitStack() as stack:
        dtype = np.uint16 if tokenizer.size <= 2**16 else np.uint32
        tokens = {s: stack.enter_context(NpyFile(folder / f"{s}.tokens.npy", dtype)) for s in SPLITS}
        offsets = {s: stack.enter_context(NpyFile(folder / f"{s}.offsets.npy", np.int64)) for s in SPLITS}
        lengths = {s: stack.enter_context(NpyFile(folder / f"{s}.bytes.npy", np.int64)) for s in SPLITS}
        for split in SPLITS:
            offsets[split].append(np.array([0]))
        for batch in batches:
            texts = [record.content.decode() for record in batch]
            encodings = tokenizer.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            for record, encoded in zip(batch, encodings, strict=True):
                split, ids = record.split, np.array([*encoded.ids, tokenizer.end])
                offset[split] += len(ids)
                tokens[split].append(ids)
                offsets[split].append(np.array([offset[split]]))
                lengths[split].append(np.array([len(record.content)]))
    return offset
