"""Records to examples: arrays that a training process maps into memory and reads as they are.

Whatever is learned from data here (mean, deviation, the tokenizer) is learned from the training split alone.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.npy import NpyFile
from understudy.data.raw import SPLITS
from understudy.recipe import Task
from understudy.recipe.data import Data, Image, Text
from understudy.store.files import read_json, write_json

Progress = Callable[[int, int], None]
Batch = list[dict[str, Any]]

BATCH_ROWS = 256
GREY_LEVEL = 1 / 255


def prepare(data: Data, task: Task, records: Path, folder: Path, progress: Progress) -> None:
    """Write the files of an `examples` object.

    Args:
        data: the recipe's section.
        task: the recipe's task.
        records: the folder of a `records` object.
        folder: an empty folder.
        progress: told how many records are done, of how many.

    Raises:
        InputError: the pretrained tokenizer cannot be had.
    """
    facts = read_json(records / "records.json")
    about = {"task": task, "counts": facts["counts"], "skipped": len(facts["skipped"])}
    batches = _reported(_batches(records), sum(facts["counts"].values()), progress)
    if task == "causal-lm":
        about |= _texts(data.text or Text(), records, batches, folder)
    else:
        about |= _images(data.image or Image(), facts["labels"], batches, folder)
    write_json(folder / "examples.json", about)


def _batches(records: Path, *, split: str | None = None) -> Iterator[Batch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(records / "records.parquet") as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=["split", "label", "content"]):
            yield [row for row in batch.to_pylist() if split is None or row["split"] == split]


def _reported(batches: Iterator[Batch], total: int, progress: Progress) -> Iterator[Batch]:
    done = 0
    for batch in batches:
        yield batch
        done += len(batch)
        progress(done, total)


def _images(shape: Image, labels: list[str], batches: Iterator[Batch], folder: Path) -> dict[str, Any]:
    from understudy.data.images import pixels

    index = {label: number for number, label in enumerate(labels)}
    row = (shape.channels, shape.size, shape.size)
    histogram = np.zeros((shape.channels, 256), np.int64)
    with ExitStack() as stack:
        images = {s: stack.enter_context(NpyFile(folder / f"{s}.images.npy", np.uint8, row)) for s in SPLITS}
        targets = {s: stack.enter_context(NpyFile(folder / f"{s}.labels.npy", np.int64)) for s in SPLITS}
        for batch in batches:
            for record in batch:
                image = pixels(record["content"], shape.size, shape.channels)
                images[record["split"]].append(image[np.newaxis])
                targets[record["split"]].append(np.array([index[record["label"]]]))
                if record["split"] == "train":
                    histogram += [np.bincount(channel.ravel(), minlength=256) for channel in image]
    mean, deviation = _moments(histogram)
    return {"labels": labels, "image": shape.model_dump(), "mean": mean, "std": deviation}


def _moments(histogram: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of x / 255 per channel, from counts (channels, 256).

    In whole numbers: a product of matrices rounds as the machine's memory happens to lie, and every key below this one
    would differ in the last bit.
    """
    means, deviations = [], []
    for counts in histogram.tolist():
        total = sum(counts)
        first = sum(count * level for level, count in enumerate(counts))
        second = sum(count * level**2 for level, count in enumerate(counts))
        means.append(first / (255 * total))
        deviation = math.sqrt((total * second - first**2) / (255 * total) ** 2)
        deviations.append(max(deviation, GREY_LEVEL))  # a channel that never changes has none to divide by
    return means, deviations


def _texts(shape: Text, records: Path, batches: Iterator[Batch], folder: Path) -> dict[str, Any]:
    from understudy.data import tokenizer as tokenizers

    if shape.tokenizer.pretrained is None:
        documents = (row["content"].decode() for batch in _batches(records, split="train") for row in batch)
        tokenizer = tokenizers.train(documents, shape.tokenizer.vocab_size)
        end = tokenizer.token_to_id(tokenizers.END_OF_TEXT)
    else:
        tokenizer, end = tokenizers.pretrained(shape.tokenizer)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    size = max(tokenizer.get_vocab().values()) + 1
    tokens = _encode(tokenizer, end, size, batches, folder)
    return {"tokens": tokens, "vocab_size": size, "eos_id": end, "sequence_length": shape.sequence_length}


def _encode(tokenizer: Any, end: int, size: int, batches: Iterator[Batch], folder: Path) -> dict[str, int]:
    """Write tokens, offsets and bytes of each split; returns the number of tokens by split."""
    offset: dict[str, int] = dict.fromkeys(SPLITS, 0)
    with ExitStack() as stack:
        dtype = np.uint16 if size <= 2**16 else np.uint32
        tokens = {s: stack.enter_context(NpyFile(folder / f"{s}.tokens.npy", dtype)) for s in SPLITS}
        offsets = {s: stack.enter_context(NpyFile(folder / f"{s}.offsets.npy", np.int64)) for s in SPLITS}
        lengths = {s: stack.enter_context(NpyFile(folder / f"{s}.bytes.npy", np.int64)) for s in SPLITS}
        for split in SPLITS:
            offsets[split].append(np.array([0]))
        for batch in batches:
            texts = [record["content"].decode() for record in batch]
            for record, encoded in zip(
                batch, tokenizer.encode_batch_fast(texts, add_special_tokens=False), strict=True
            ):
                split, ids = record["split"], np.array([*encoded.ids, end])
                offset[split] += len(ids)
                tokens[split].append(ids)
                offsets[split].append(np.array([offset[split]]))
                lengths[split].append(np.array([len(record["content"])]))
    return offset
