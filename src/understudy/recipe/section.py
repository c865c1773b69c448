"""The base of the recipe's sections, and the number types that several of them use."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(gt=0)]
BatchSize = Annotated[int, Field(gt=0, le=2**24)]


class Section(BaseModel):
    """A part of the recipe: unknown keys are errors, and nothing changes after loading.

    Its schema is built at the first validation, not at definition: that loads the data sources, which import this
    module themselves.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, defer_build=True)


def is_none(value: object) -> bool:
    """Whether a key is left out of a dump: one that was added later, so that earlier recipes keep their keys."""
    return value is None
