"""A section of the recipe: what all of its models share, and the numbers that several of them take."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(gt=0)]
BatchSize = Annotated[int, Field(gt=0, le=2**24)]


class Section(BaseModel):
    """A part of the recipe: unknown keys are errors, and nothing changes after loading.

    What is allowed in it is worked out when the first one is checked, not when it is defined: the data sources are
    loaded for that, and they import this module themselves.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, defer_build=True)
