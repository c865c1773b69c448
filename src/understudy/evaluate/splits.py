"""The test split as each model sees it: the champion may have been trained on images of another shape than this run's.

Its images are then made from the same records, as in the run that trained it. On this run's images, resized again, it
would look worse than it is and let a worse student pass.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from understudy.data.image_arrays import write_images
from understudy.data.records import read
from understudy.errors import InputError
from understudy.evaluate.scoring import Documents, Images
from understudy.models.facts import Description, Facts, first_token, read_facts
from understudy.recipe import Image

TestSplit = Images | Documents


@contextmanager
def splits_by_role(
    models: Mapping[str, Description], examples: Path, records: Path | None, scratch: Path, stride: int | None = None
) -> Iterator[dict[str, TestSplit]]:
    """The same examples in the same order for every model.

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
    split: TestSplit
    if facts["task"] == "causal-lm":
        length = facts["sequence_length"]
        split = Documents(examples, length, first_token(facts), stride or length)
    else:
        split = Images(examples)
    if not len(split.tokens):
        raise InputError("data.test: the test split is empty, so nothing can be measured; give it a larger share")
    found = dict.fromkeys(models, split)
    if facts["task"] == "causal-lm":  # a champion may have been registered without its tokenizer's BOS
        for role, description in models.items():
            if first_token(description) != first_token(facts):
                found[role] = Documents(examples, length, first_token(description), stride or length)
    with TemporaryDirectory(dir=scratch) as aside:
        if facts["task"] == "image-classification":
            for role, shape in _other_shapes(models, facts).items():
                assert records is not None
                folder = Path(aside) / role
                folder.mkdir()
                write_images(chain.from_iterable(read(records, "test")), facts["labels"], shape, ("test",), folder)
                found[role] = Images(folder)
        yield found


def _other_shapes(models: Mapping[str, Description], facts: Facts) -> dict[str, Image]:
    """The image shapes of the models, where they are not the examples'."""
    shapes = {}
    for role, description in models.items():
        if description["image"] != facts["image"]:
            shapes[role] = Image.model_validate(description["image"])
    return shapes
