"""Records -> examples: arrays that a training process maps into memory and reads unchanged.

Mean, deviation and the tokenizer are computed from the training split alone.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, cast

from understudy.data.records import Content, read
from understudy.models.facts import Facts
from understudy.recipe import TaskName
from understudy.recipe.data import Data
from understudy.recipe.tasks import load
from understudy.store.files import read_json, write_json

Progress = Callable[[int, int], None]
Batches = Iterator[list[Content]]


class Prepares(Protocol):
    """A task, as preparation sees it."""

    def prepare(
        self, data: Data, labels: list[str], records: Path, batches: Batches, folder: Path, like: Path | None
    ) -> Facts:
        """Write the arrays of all splits; returns the facts for examples.json.

        A fact `labels` are the classes of a prediction; without it a prediction is one of the vocabulary's tokens. A
        fact that only the task reads is in `details`, and `notes` are for the user.

        Args:
            data: the recipe's section.
            labels: all labels of the records, in order; empty unless the task is LABELLED.
            records: the folder of a `records` object.
            batches: all its records, to be read once.
            folder: an empty folder.
            like: other examples, whose tokenizer or moments are taken instead of computed.
        """


def prepare(
    data: Data, task: TaskName, records: Path, folder: Path, progress: Progress, like: Path | None = None
) -> list[str]:
    """Write the files of an `examples` object, and return notes on it for the user.

    Args:
        data: the recipe's section.
        task: the recipe's task.
        records: the folder of a `records` object.
        folder: an empty folder.
        progress: called with the number of records done, and the total.
        like: the examples of the section `data`, if these are further data: both are for the same models.

    Raises:
        InputError: the pretrained tokenizer is not available, loses text, or has a damaged file beside it.
    """
    facts = read_json(records / "records.json")
    batches = _reported(read(records), sum(facts["counts"].values()), progress)
    about = cast("Prepares", load(task)).prepare(data, facts["labels"] or [], records, batches, folder, like)
    write_json(folder / "examples.json", {**about, "counts": facts["counts"], "skipped": len(facts["skipped"])})
    return about.get("notes", [])


def _reported(batches: Batches, total: int, progress: Progress) -> Batches:
    done = 0
    for batch in batches:
        yield batch
        done += len(batch)
        progress(done, total)
