"""Records -> examples: arrays that a training process maps into memory and reads unchanged.

Mean, deviation and the tokenizer are computed from the training split alone.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.npy import NpyFile
from understudy.data.packing import write_packed
from understudy.data.raw import SPLITS, Split
from understudy.data.records import Content, read
from understudy.models.facts import AboutImages, AboutTexts, ImageShape
from understudy.recipe import TaskName
from understudy.recipe.data import Data, Image, Text
from understudy.store.files import read_json, write_json

Progress = Callable[[int, int], None]

GREY_LEVEL = 1 / 255
LEARNED_FROM: tuple[Split, ...] = ("train", "validation")
"""The splits that are read in sequences; the test split is read document by document."""


class TextFacts(AboutTexts):
    """The facts of text examples, with those that models do not have."""

    tokens: dict[str, int]
    """Number of tokens by split, end-of-text tokens included."""


def prepare(data: Data, task: TaskName, records: Path, folder: Path, progress: Progress) -> None:
    """Write the files of an `examples` object.

    Args:
        data: the recipe's section.
        task: the recipe's task.
        records: the folder of a `records` object.
        folder: an empty folder.
        progress: called with the number of records done, and the total.

    Raises:
        InputError: the pretrained tokenizer is not available, loses text, or has a damaged file beside it.
    """
    facts = read_json(records / "records.json")
    batches = _reported(read(records), sum(facts["counts"].values()), progress)
    about: AboutImages | TextFacts
    if task == "causal-lm":
        about = _texts(data.text or Text(), records, batches, folder)
    else:
        about = _images(data.image or Image(), facts["labels"], batches, folder)
    write_json(folder / "examples.json", {**about, "counts": facts["counts"], "skipped": len(facts["skipped"])})


def _reported(batches: Iterator[list[Content]], total: int, progress: Progress) -> Iterator[list[Content]]:
    done = 0
    for batch in batches:
        yield batch
        done += len(batch)
        progress(done, total)


def _images(shape: Image, labels: list[str], batches: Iterator[list[Content]], folder: Path) -> AboutImages:
    from understudy.data.image_arrays import write_images

    mean, deviation = _moments(write_images(chain.from_iterable(batches), labels, shape, SPLITS, folder))
    image: ImageShape = {"size": shape.size, "channels": shape.channels}
    if shape.background == "black":
        image["background"] = "black"
    return {"task": "image-classification", "labels": labels, "image": image, "mean": mean, "std": deviation}


def _moments(histogram: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of x / 255 per channel, from counts (channels, 256).

    In integers: the rounding of a matrix product depends on memory alignment, and another last bit would change all
    later keys.
    """
    means, deviations = [], []
    for counts in histogram.tolist():
        total = sum(counts)
        first = sum(count * level for level, count in enumerate(counts))
        second = sum(count * level**2 for level, count in enumerate(counts))
        means.append(first / (255 * total))
        deviation = math.sqrt((total * second - first**2) / (255 * total) ** 2)
        deviations.append(max(deviation, GREY_LEVEL))  # a constant channel has a deviation of 0
    return means, deviations


def _texts(shape: Text, records: Path, batches: Iterator[list[Content]], folder: Path) -> TextFacts:
    from understudy.data import tokenizer as tokenizers
    from understudy.data import tokenizer_files

    ids = None
    if shape.tokenizer.pretrained is None:
        tokenizer = tokenizers.train(_documents(records), shape.tokenizer.vocab_size)
        end, first = tokenizer.token_to_id(tokenizers.END_OF_TEXT), None
        beside = tokenizer_files.of_trained()
    else:
        tokenizer, end, first = tokenizers.pretrained(shape.tokenizer)
        tokenizers.check_lossless(shape.tokenizer, tokenizer, _documents(records))
        beside, ids = tokenizer_files.of_pretrained(shape.tokenizer, tokenizer, end)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    tokenizer_files.write(folder, beside)
    size = tokenizers.vocabulary_size(tokenizer)
    tokens = _encode(tokenizer, end, size, batches, folder)
    if shape.packing == "documents":
        for split in LEARNED_FROM:
            write_packed(folder, split, shape.sequence_length)
    facts: TextFacts = {
        "task": "causal-lm",
        "vocab_size": size,
        "eos_id": end,
        "sequence_length": shape.sequence_length,
        "tokens": tokens,
    }
    if first is not None and first != end:
        facts["bos_id"] = first
    if ids is not None:
        facts["special_ids"] = ids
    if shape.packing == "documents":
        facts["packing"] = "documents"
    return facts


def _documents(records: Path) -> Iterator[str]:
    """The documents of the training split."""
    return (row.content.decode() for batch in read(records, "train") for row in batch)


def _encode(tokenizer: Any, end: int, size: int, batches: Iterator[list[Content]], folder: Path) -> dict[str, int]:
    """Write tokens, offsets and bytes of each split; returns the number of tokens by split.

    Args:
        tokenizer: a tokenizers.Tokenizer.
        end: the id of its end-of-text token.
        size: the size of its vocabulary.
        batches: the records.
        folder: where to write.
    """
    offset: dict[str, int] = dict.fromkeys(SPLITS, 0)
    with ExitStack() as stack:
        dtype = np.uint16 if size <= 2**16 else np.uint32
        tokens = {s: stack.enter_context(NpyFile(folder / f"{s}.tokens.npy", dtype)) for s in SPLITS}
        offsets = {s: stack.enter_context(NpyFile(folder / f"{s}.offsets.npy", np.int64)) for s in SPLITS}
        lengths = {s: stack.enter_context(NpyFile(folder / f"{s}.bytes.npy", np.int64)) for s in SPLITS}
        for split in SPLITS:
            offsets[split].append(np.array([0]))
        for batch in batches:
            texts = [record.content.decode() for record in batch]
            found = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            for record, encoded in zip(batch, found, strict=True):
                split, ids = record.split, np.array([*encoded.ids, end])
                offset[split] += len(ids)
                tokens[split].append(ids)
                offsets[split].append(np.array([offset[split]]))
                lengths[split].append(np.array([len(record.content)]))
    return offset
