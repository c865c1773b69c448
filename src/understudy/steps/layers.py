"""The layers that learners start from, compared with the depths in the recipe, before anything is read.

A depth that is not in the recipe, and the sizes of the layers, are compared when the first training begins
(train/layers.py).
"""

from collections.abc import Iterator
from pathlib import Path

from understudy.errors import InputError
from understudy.models.architectures import depth
from understudy.models.layers import chosen_layers
from understudy.recipe import ArchitectureModel, FactoryModel, Model, Recipe
from understudy.recipe.key_path import Conflict, conflict_of
from understudy.recipe.learners import starts
from understudy.recipe.roles import section_of
from understudy.store.files import read_json


def problems(recipe: Recipe) -> Iterator[Conflict]:
    """The layers that a teacher does not have, each with its path in the recipe, and the fix."""
    for section, start in starts(recipe).items():
        if start.teacher is None or section_of(start.teacher) not in recipe.models:
            continue  # recipe/learners.py refuses it; the other sections are checked, too
        layers = _depth(recipe.learners[section].model)
        teacher_layers = _depth(recipe.models[section_of(start.teacher)])
        if layers is None or teacher_layers is None:
            continue
        try:
            chosen_layers(start.layers, layers, teacher_layers, f"{section}.start.layers", start.teacher)
        except InputError as error:
            yield conflict_of(error)


def _depth(model: Model) -> int | None:
    """The number of a model's layers; None if the recipe does not give it."""
    if isinstance(model, FactoryModel):
        return None
    if isinstance(model, ArchitectureModel):
        return depth(model.type, model.config)
    folder = Path(model.pretrained)
    config = read_json(folder / "config.json") if folder.is_dir() else None
    return depth(str(config.get("model_type")), config) if isinstance(config, dict) else None
