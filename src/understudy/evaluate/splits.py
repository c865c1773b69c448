"""The test split as each model sees it: a champion may have been trained on examples of another shape."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from understudy.data.measured import TestSplit
from understudy.errors import InputError
from understudy.evaluate.task import evaluated_task
from understudy.models.facts import Description, read_facts


@contextmanager
def splits_by_role(
    models: Mapping[str, Description], examples: Path, records: Path | None, scratch: Path, stride: int | None = None
) -> Iterator[dict[str, TestSplit]]:
    """The test split by role: the same examples in the same order, in the shape that each model takes.

    Args:
        models: the models' descriptions, by role.
        examples: the folder of an `examples` object.
        records: the folder of the records behind it; needed if a model takes images of another shape.
        scratch: an existing folder, for temporary files.
        stride: the stride of documents' windows in tokens; None for the sequence length.

    Raises:
        InputError: the test split is empty.
    """
    facts = read_facts(examples)
    task = evaluated_task(facts["task"])
    split = task.test_split(examples, facts, facts, stride, None, None)
    if not len(split.tokens):
        raise InputError("data.test: the test split is empty, so nothing can be measured; give it a larger share")
    with TemporaryDirectory(dir=scratch) as temporary:
        splits = {}
        for role, description in models.items():
            folder = Path(temporary) / role
            folder.mkdir()
            splits[role] = task.test_split(examples, facts, description, stride, records, folder)
        yield splits
