"""The recipe's section data: where records come from, how they are split, and what every example looks like."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A part of the recipe: unknown keys are errors, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class DigitsSource(Section):
    """scikit-learn's 1797 handwritten digits of 8 x 8 pixels; built in, no download."""

    type: Literal["digits"]


class ImageFolderSource(Section):
    """A folder of images, one sub-folder per label, or train/ and test/ (and validation/) above those."""

    type: Literal["image-folder"]
    path: str


class ParquetSource(Section):
    """A Parquet file, or a folder of them, with a column of encoded images and one of labels."""

    type: Literal["parquet"]
    path: str
    image: str = "image"
    label: str = "label"
    split: str | None = None
    """Column that names each row's split: train, validation or test."""


class TextFilesSource(Section):
    """A folder of UTF-8 text files, one document a file; train/ and test/ sub-folders are respected."""

    type: Literal["text-files"]
    path: str
    glob: str = "**/*.txt"


class PythonDocsSource(Section):
    """The documentation that ships with the Python interpreter: pydoc's topics and the docstrings."""

    type: Literal["python-docs"]


Source = Annotated[
    DigitsSource | ImageFolderSource | ParquetSource | TextFilesSource | PythonDocsSource, Field(discriminator="type")
]


def _no_truth(value: Any) -> Any:
    """To Python, and so to pydantic's Literal, true is 1."""
    if isinstance(value, bool):
        raise ValueError(f"expected 1 or 3, got {str(value).lower()}")
    return value


class Image(Section):
    """What every image becomes: size x size pixels."""

    size: Positive = 32
    channels: Annotated[Literal[1, 3], BeforeValidator(_no_truth)] = 3


class Tokenizer(Section):
    """A byte-level BPE trained on the training split, or the one of a pretrained folder or hub id."""

    vocab_size: Annotated[int, Field(ge=258)] = 4096
    pretrained: str | None = None
    revision: str | None = None


class Text(Section):
    """How documents become sequences of tokens."""

    sequence_length: Annotated[int, Field(ge=2)] = 256
    tokenizer: Tokenizer = Tokenizer()


class Data(Section):
    """Where records come from, and how they are split and shaped."""

    source: Source
    validation: Fraction = 0.1
    test: Fraction = 0.2
    on_error: Literal["fail", "skip"] = "fail"
    """What to do with a record that cannot be read: stop and name it, or leave it out and count it."""
    image: Image | None = None
    text: Text | None = None
