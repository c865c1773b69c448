"""Descriptions of new models: a recipe's section, checked against the data before any training."""

import inspect
from typing import Any

import torch

from understudy.errors import InputError
from understudy.models.architectures import composite_message, duplicate_settings, optional_settings, suggestion
from understudy.models.build import auto_class, build_model, factory_function
from understudy.models.facts import (
    Config,
    Description,
    Factory,
    Facts,
    Transformers,
    TransformersDescription,
    data_settings,
    described_facts,
    first_token,
    predicts_tokens,
)
from understudy.models.text_config import text_config
from understudy.recipe import ArchitectureModel, FactoryModel, Model, TaskName


def describe(model: Model, facts: Facts, section: str) -> Description:
    """The description of a section's model on these examples: the content of understudy.json.

    Args:
        model: the recipe's section, not of a pretrained model; that gets its description from its files.
        facts: the content of examples.json.
        section: the model's path in the recipe, for errors.

    Raises:
        InputError: the section's configuration does not exist or does not fit the examples.
    """
    shape = data_settings(facts)
    if isinstance(model, FactoryModel):
        factory: Factory = {"kind": "factory", "factory": model.factory, "kwargs": _kwargs(model, shape, section)}
        return {**described_facts(facts), **factory}
    assert isinstance(model, ArchitectureModel)
    network: Transformers = {"kind": "transformers", "config": _config(model, shape, facts, section)}
    description: TransformersDescription = {**described_facts(facts), **network}
    _check_build(description, section)
    return description


def _kwargs(model: FactoryModel, shape: dict[str, int], section: str) -> Config:
    """A factory's arguments: the recipe's kwargs, and the settings from the data that its signature accepts."""
    signature = inspect.signature(factory_function(model.factory, section))
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    accepted = shape.keys() if takes_all else shape.keys() & signature.parameters.keys()
    defaults = {name: value for name, value in shape.items() if name in accepted}
    kwargs = {**defaults, **model.kwargs}
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        raise InputError(
            f"{section}.kwargs: {model.factory}{signature} does not take these arguments: {error}"
        ) from error
    return kwargs


def _check_build(description: TransformersDescription, section: str) -> None:
    """Build the model without memory, so that a contradictory configuration is reported before any work."""
    try:
        with torch.device("meta"):
            build_model(description)
    except (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
        kind, reason = type(error).__name__, " ".join(str(error).split())
        name = description["config"]["model_type"]
        raise InputError(f"{section}.config: no {name} can be built with these values ({kind}: {reason})") from error


def _config(model: ArchitectureModel, shape: dict[str, int], facts: Facts, section: str) -> Config:
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    setting_names = _setting_names(model, facts["task"], section)
    for key in model.config:
        if key not in setting_names and key not in shape:
            raise InputError(
                f"{section}.config.{key}: {model.type} has no such setting{suggestion(key, setting_names)}"
            )
    for key, problem in duplicate_settings(AutoConfig.for_model(model.type).attribute_map, {**shape, **model.config}):
        raise InputError(f"{section}.config.{key}: {problem}")
    for key, value in shape.items():
        if model.config.get(key, value) != value:
            raise InputError(f"{section}.config.{key}: is {model.config[key]}, the data has {value}; leave it out")
    defaults: Config = {}
    if "eos_id" in facts:
        defaults = {"bos_token_id": first_token(facts), "eos_token_id": facts["eos_id"]}
        if "is_decoder" in setting_names and predicts_tokens(facts):
            defaults["is_decoder"] = True  # otherwise attention is not causal
    defaults |= facts.get("special_ids", {})
    if predicts_tokens(facts):
        # torch.nn.Embedding would not train that token, which may be the end-of-text token as well.
        defaults.pop("pad_token_id", None)
    try:
        config = AutoConfig.for_model(model.type, **{**defaults, **shape, **model.config})
    except (StrictDataclassError, ValueError, TypeError) as error:
        reason = " ".join(str(error).rpartition("Error: ")[2].split())  # without the name of the failed check
        raise InputError(f"{section}.config: {reason}") from error
    check_config(config, facts, section)
    return dict(config.to_diff_dict())


def _setting_names(model: ArchitectureModel, task: TaskName, section: str) -> Config:
    """An architecture's settings with defaults, their aliases, and the settings that only its network reads."""
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    try:
        config = AutoConfig.for_model(model.type)
    except ValueError as error:
        hint = suggestion(model.type, CONFIG_MAPPING_NAMES)
        raise InputError(f"{section}.type: transformers has no architecture {model.type!r}{hint}") from error
    if type(text_config(config)) is not type(config):
        raise InputError(f"{section}.type: {composite_message(model.type, task)}")
    return {**config.to_dict(), **dict.fromkeys([*config.attribute_map, *optional_settings(model.type)])}


def check_config(config: Any, facts: Facts, section: str) -> None:
    """Check that a transformers configuration fits these examples.

    Raises:
        InputError: its architecture is for another task, has no layers, is not causal, or has too few positions.
    """
    task = facts["task"]
    sequence_config = text_config(config) if "sequence_length" in facts else config
    layers = getattr(sequence_config, "num_hidden_layers", None)
    if isinstance(layers, int) and layers < 1:
        raise InputError(f"{section}: has {layers} layers; it needs at least one")
    if type(config) not in auto_class(task)._model_mapping and not getattr(config, "auto_map", None):
        raise InputError(f"{section}: {config.model_type} is no architecture for the task {task}")
    if predicts_tokens(facts) and not getattr(config, "is_decoder", True) and "is_decoder" in type(config)().to_dict():
        raise InputError(
            f"{section}: a {config.model_type} sees the tokens that it is to predict unless its config says "
            "is_decoder: true; take another model"
        )
    max_positions = getattr(sequence_config, "max_position_embeddings", None)
    if "sequence_length" in facts and max_positions and max_positions < facts["sequence_length"]:
        raise InputError(
            f"{section}: sees {max_positions} positions, data.text.sequence_length is {facts['sequence_length']}; "
            "make that smaller or take a model that sees more"
        )
