"""The recipe's section data: the source of records, their split, and the shape of examples."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from understudy.recipe.section import Fraction, Positive, Section
from understudy.recipe.sources import Source


def _refuse_bool(value: object) -> object:
    """Refuse true, which equals 1 in Python, and so in pydantic's Literal."""
    if isinstance(value, bool):
        raise ValueError(f"expected 1 or 3, got {str(value).lower()}")
    return value


class Image(Section):
    """The shape of every image: size x size pixels."""

    size: Positive = 32
    channels: Annotated[Literal[1, 3], BeforeValidator(_refuse_bool)] = 3
    background: Literal["white", "black"] = "white"
    """Colour behind a transparent image."""


class Tokenizer(Section):
    """A byte-level BPE tokenizer trained on the training split, or the one of a pretrained folder or hub id."""

    vocab_size: Annotated[int, Field(ge=258, le=2**24)] = 4096
    pretrained: str | None = None
    revision: str | None = None


class Text(Section):
    """How documents become sequences of tokens."""

    sequence_length: Annotated[int, Field(ge=2)] = 256
    packing: Literal["wrapped", "documents"] = "wrapped"
    """Contents of a training sequence: a window over all documents end to end (wrapped), or whole documents that are
    masked from each other (documents)."""
    tokenizer: Tokenizer = Tokenizer()


class Chat(Section):
    """How conversations become sequences of tokens, and which of the tokens are learned."""

    template: str | None = None
    """A file with a chat template (jinja). Without it, the template of the pretrained tokenizer, or ChatML for a
    tokenizer that is trained here."""
    loss_on: Literal["assistant", "last", "all"] = "assistant"
    """The tokens that are targets: all turns of the assistant, the last one, or all tokens."""
    train_on_eos: bool = True
    """Whether the token that ends a learned turn is a target, too."""


class DataSet(Section):
    """The source of records that some trainings read instead of `data`; all are trained on.

    Their shape, labels and tokenizer are those of `data`. Records that `data` sets aside are left out.
    """

    source: Source
    on_error: Literal["fail", "skip"] = "fail"
    """For a record that cannot be read: stop and name it (fail), or leave it out and count it (skip)."""


class Data(DataSet):
    """The source of records, their split, and their shape."""

    validation: Fraction = 0.0
    """Share of records that is set aside, by content hash; `train.validate_every` measures on it."""
    test: Fraction = 0.2
    image: Image | None = None
    text: Text | None = None
    chat: Chat | None = None
