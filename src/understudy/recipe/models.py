"""The kinds of model in a recipe: an architecture, a pretrained one, or a function of the user's."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Discriminator, Field, JsonValue, Tag

from understudy.recipe.section import Section

FACTORY = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


class ArchitectureModel(Section):
    """A transformers architecture, from scratch: its model type and the configuration's values."""

    type: str
    config: dict[str, JsonValue] = Field(default={})


class Normalization(Section):
    """Normalisation of an image model's inputs in its training: (x / 255 - mean) / std, a number per channel."""

    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]


class PretrainedModel(Section):
    """A folder in the hub's format, or a hub id at a commit."""

    pretrained: str
    revision: str | None = None
    """A commit, a tag or a branch, which is resolved to a commit and recorded."""
    allow_pickle: bool = False
    """Also read pickle files, which run code when they are opened, and not only safetensors."""
    trust_remote_code: bool = False
    normalization: Normalization | None = None
    """For images. Default: as in the model's preprocessor_config.json."""
    labels: tuple[str, ...] | None = None
    """For images: the names of the model's outputs, in their order. Default: as in its config.json."""


class FactoryModel(Section):
    """A function that returns a torch module, as "package.module:function"."""

    factory: Annotated[str, Field(pattern=FACTORY)]
    kwargs: dict[str, JsonValue] = Field(default={})


def _model_kind(value: object) -> str | None:
    if isinstance(value, dict):
        keys = [key for key in value if value[key] is not None] or list(value)  # null takes a key back
    else:
        keys = list(value.__class__.model_fields) if isinstance(value, Section) else []
    return next((kind for kind, key in MODEL_KEYS.items() if key in keys), None)


MODEL_KEYS = {"architecture": "type", "pretrained": "pretrained", "factory": "factory"}
Model = Annotated[
    Annotated[ArchitectureModel, Tag("architecture")]
    | Annotated[PretrainedModel, Tag("pretrained")]
    | Annotated[FactoryModel, Tag("factory")],
    Discriminator(
        _model_kind,
        custom_error_type="model_kind",
        custom_error_message="a model needs one of the keys type (an architecture), pretrained, or factory",
    ),
]


@dataclass(frozen=True)
class SavedModel:
    """A model that a step saved, and its section of the recipe, which the files must match."""

    folder: str
    model: Model


@dataclass(frozen=True)
class SavedLogits:
    """A teacher's logits that a step cached."""

    folder: str
