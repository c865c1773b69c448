"""The recipe's section data: where records come from, how they are split, and what every example looks like."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from understudy.recipe.section import Fraction, Positive, Section
from understudy.recipe.sources import Source


def _refuse_bool(value: object) -> object:
    """To Python, and so to pydantic's Literal, true is 1."""
    if isinstance(value, bool):
        raise ValueError(f"expected 1 or 3, got {str(value).lower()}")
    return value


class Image(Section):
    """The shape of every image: size x size pixels."""

    size: Positive = 32
    channels: Annotated[Literal[1, 3], BeforeValidator(_refuse_bool)] = 3
    background: Literal["white", "black"] = "white"
    """What lies behind a transparent image."""


class Tokenizer(Section):
    """A byte-level BPE trained on the training split, or the one of a pretrained folder or hub id."""

    vocab_size: Annotated[int, Field(ge=258, le=2**24)] = 4096
    pretrained: str | None = None
    revision: str | None = None


class Text(Section):
    """How documents become sequences of tokens."""

    sequence_length: Annotated[int, Field(ge=2)] = 256
    packing: Literal["wrapped", "documents"] = "wrapped"
    """What a training sequence is: a window over all documents end to end, or whole documents that see none of the
    others."""
    tokenizer: Tokenizer = Tokenizer()


class Data(Section):
    """Where records come from, and how they are split and shaped."""

    source: Source
    validation: Fraction = 0.0
    """Share that is set aside, by content hash; `train.validate_every` measures on it."""
    test: Fraction = 0.2
    on_error: Literal["fail", "skip"] = "fail"
    """What to do with a record that cannot be read: stop and name it, or leave it out and count it."""
    image: Image | None = None
    text: Text | None = None
