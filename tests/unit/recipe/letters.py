"""A data source that only the tests have: images of one colour, drawn from letters. It has a key of every kind."""

import io
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from understudy.data.raw import Raw, Reading
from understudy.data.sources.source import DataSource
from understudy.recipe.section import Section
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints, sha256


class Pen(Section):
    tool: Literal["pen"]
    width: Annotated[int, Field(gt=0, le=9)] = 1


class Brush(Section):
    tool: Literal["brush"]
    hairs: Literal["fine", "coarse"] = "fine"


class Grey(Section):
    grey: float


class Ink(Section):
    ink: Annotated[str, Field(pattern="^[a-z]+$")]


Colour = Annotated[
    Annotated[Grey, Tag("grey")] | Annotated[Ink, Tag("ink")],
    Discriminator(lambda value: "grey" if "grey" in value else "ink"),
]


class LettersSource(SourceSection):
    type: Literal["letters"]
    letters: str
    tools: tuple[Annotated[Pen | Brush, Field(discriminator="tool")], ...] = ()
    colour: Colour | None = None
    sizes: dict[str, Pen] = Field(default={})
    count: int | Literal["all"] = "all"

    @model_validator(mode="after")
    def _check_letters(self) -> "LettersSource":
        if not self.letters:
            raise ValueError("give at least one letter")
        return self


def read(section: LettersSource, _fields: Mapping[str, Kind]) -> Reading:
    return Reading(len(section.letters) * 20, _records(section))


def _records(section: LettersSource) -> Iterator[Raw]:
    from PIL import Image

    for letter in section.letters:
        for number in range(20):
            stream = io.BytesIO()
            Image.new("L", (4, 4), ord(letter) + number).save(stream, "PNG")
            yield Raw(f"{letter}{number}", stream.getvalue(), letter)


def digest(section: LettersSource, _fingerprints: Fingerprints) -> str:
    return sha256(section.letters.encode())


SOURCE = DataSource(LettersSource, frozenset({"image", "label"}), read, digest)
