"""The start of a learner's training from layers of a teacher."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from understudy.recipe.section import Section

Layer = Annotated[int, Field(ge=1)]


class Start(Section):
    """The first weights of a model: some layers of a teacher, and all that is outside layers, such as embeddings and
    the head (Sanh et al. 2019, DistilBERT).
    """

    teacher: Annotated[str, Field(min_length=1)] | None = None
    """The name of a teacher; it need not teach the model. Default: the model's only teacher."""
    layers: Literal["uniform", "last"] | Annotated[tuple[Layer, ...], Field(min_length=1)] = "uniform"
    """The teacher's layer for each of the model's: uniform (at the same share of the depth), last (the last ones), or a
    list, counted from 1."""


@dataclass(frozen=True)
class SavedLayers:
    """A model that a step saved, and the layers of it that another starts from."""

    folder: str
    start: Start
