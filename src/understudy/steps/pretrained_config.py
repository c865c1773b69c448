"""The config.json of a pretrained model, compared with the recipe before anything is read or trained."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from understudy.errors import InputError
from understudy.models import architectures
from understudy.models.facts import data_settings, predicts_tokens
from understudy.models.labels import check_count
from understudy.plan.expected import facts_of
from understudy.recipe import PretrainedModel, Recipe
from understudy.recipe.key_path import Conflict, conflict_of


def data_shape(recipe: Recipe) -> dict[str, int | None]:
    """The configuration values that come from the data, under transformers' names; None before the data is read."""
    shape = data_settings(facts_of(recipe, 0))
    return {name: None if name in ("num_labels", "vocab_size") else size for name, size in shape.items()}


def config_conflicts(recipe: Recipe, model: PretrainedModel, path: Path | None, section: str) -> Iterator[Conflict]:
    """The contradictions between a recipe and a pretrained model's config.json; None if the model has no such file."""
    model_path = (*section.split("."), "pretrained")
    if path is None:
        yield model_path, f"{model.pretrained} has no config.json; is it a transformers model?"
        return
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        yield model_path, f"{path} is not JSON ({error}); fetch it again"
        return
    if not isinstance(config, dict):
        yield model_path, f"{path} is not a JSON object; fetch it again"
        return
    yield from _model_type(recipe, model, config, model_path)
    if predicts_tokens(facts_of(recipe, 0)) and (head := architectures.other_head(config, recipe.task)):
        why = f"{model.pretrained} is a {head} and not a language model; choose one with a trained language-model head"
        yield model_path, why
    yield from _names(model, config, model_path)
    for key, expected in data_shape(recipe).items():
        name = {"image_size": "size", "num_channels": "channels"}.get(key)
        if name and isinstance(config.get(key), int) and config[key] != expected:
            size = config[key]
            why = f"is {expected}, but the {model_path[0]} {model.pretrained} takes {size}; set it to {size}"
            yield ("data", "image", name), why


def _model_type(
    recipe: Recipe, model: PretrainedModel, config: dict[str, Any], model_path: tuple[str, ...]
) -> Iterator[Conflict]:
    """Check that it is an architecture for the task; custom code may have any model type."""
    kind, fitting = config.get("model_type"), architectures.types_for(recipe.task)
    if config.get("auto_map"):
        return
    if not isinstance(kind, str):
        why = f"the config.json of {model.pretrained} has no model_type, or not a string; is it a transformers model?"
        yield model_path, why
    elif fitting and kind not in fitting:
        yield model_path, f"{model.pretrained} is a {kind}, which is no architecture for the task {recipe.task}"


def _names(model: PretrainedModel, config: dict[str, Any], model_path: tuple[str, ...]) -> Iterator[Conflict]:
    """Check that the recipe names as many labels as the model has outputs."""
    outputs = config.get("id2label")
    if not isinstance(outputs, dict):
        return
    try:
        check_count(model.labels, len(outputs), ".".join(model_path[:-1]))
    except InputError as error:
        yield conflict_of(error)
