"""What a model is on given examples: a recipe's spec checked against the data, before anything is built or trained."""

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

import torch

from understudy.errors import InputError
from understudy.models.build import auto_class, build_model, factory_function


def describe(spec: dict[str, Any], examples: dict[str, Any], where: str) -> dict[str, Any]:
    """What a model of this spec is on these examples: the content of understudy.json.

    Args:
        spec: the recipe's model section: an architecture or a factory.
        examples: the content of examples.json.
        where: the recipe's path of the section, for errors.

    Raises:
        InputError: the spec's configuration does not exist or does not fit the examples.
    """
    image = examples["task"] == "image-classification"
    shape = (
        {
            "num_labels": len(examples["labels"]),
            "image_size": examples["image"]["size"],
            "num_channels": examples["image"]["channels"],
        }
        if image
        else {"vocab_size": examples["vocab_size"]}
    )
    kept = ("labels", "image", "mean", "std") if image else ("vocab_size", "sequence_length", "eos_id")
    description = {"task": examples["task"], **{key: examples[key] for key in kept}}
    if "factory" in spec:
        kwargs = _kwargs(spec, shape, where)
        return {**description, "kind": "factory", "factory": spec["factory"], "kwargs": kwargs}
    description |= {"kind": "transformers", "config": _config(spec, shape, examples, where)}
    _check_build(description, where)
    return description


def _kwargs(spec: dict[str, Any], shape: dict[str, int], where: str) -> dict[str, Any]:
    """What a factory is called with: the recipe's kwargs, and what it takes of the data's shape."""
    signature = inspect.signature(factory_function(spec["factory"], where))
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    known = {name: value for name, value in shape.items() if takes_all or name in signature.parameters}
    kwargs = {**known, **spec["kwargs"]}
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        raise InputError(f"{where}.kwargs: {spec['factory']}{signature} cannot be called so: {error}") from error
    return kwargs


def _check_build(description: dict[str, Any], where: str) -> None:
    """Build the model without memory, so that a configuration that contradicts itself is told before any work."""
    try:
        with torch.device("meta"):
            build_model(description)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        kind, words = type(error).__name__, " ".join(str(error).split())
        name = description["config"]["model_type"]
        raise InputError(f"{where}.config: no {name} can be built so ({kind}: {words})") from error


def _config(spec: dict[str, Any], shape: dict[str, int], examples: dict[str, Any], where: str) -> dict[str, Any]:
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    given = spec["config"]
    try:
        known = AutoConfig.for_model(spec["type"]).to_dict()
    except ValueError as error:
        hint = _meant(spec["type"], CONFIG_MAPPING_NAMES)
        raise InputError(f"{where}.type: transformers has no architecture {spec['type']!r}{hint}") from error
    for key in given:
        if key not in known and key not in shape:
            raise InputError(f"{where}.config.{key}: {spec['type']} has no such setting{_meant(key, known)}")
    for key, value in shape.items():
        if given.get(key, value) != value:
            raise InputError(f"{where}.config.{key}: is {given[key]}, the data has {value}; leave it out")
    causal = {"is_decoder": True} if "is_decoder" in known else {}  # or it would see the tokens that it is to predict
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), examples.get("eos_id"))
    defaults = {**ends, **causal} if examples["task"] == "causal-lm" else {}
    try:
        config = AutoConfig.for_model(spec["type"], **{**defaults, **shape, **given})
    except (StrictDataclassError, ValueError, TypeError) as error:
        raise InputError(f"{where}.config: {' '.join(str(error).split())}") from error
    check_config(config, examples, where)
    return dict(config.to_diff_dict())


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def check_config(config: Any, examples: dict[str, Any], where: str) -> None:
    """Whether a transformers configuration can be a model for these examples.

    Raises:
        InputError: its architecture is for another task, it sees the tokens to come, or too few positions.
    """
    task = examples["task"]
    if type(config) not in auto_class(task)._model_mapping and not getattr(config, "auto_map", None):
        raise InputError(f"{where}: {config.model_type} is no architecture for the task {task}")
    if task == "causal-lm" and not getattr(config, "is_decoder", True) and "is_decoder" in type(config)().to_dict():
        raise InputError(
            f"{where}: a {config.model_type} sees the tokens that it is to predict unless its config says "
            "is_decoder: true; take another model"
        )
    longest = getattr(config, "max_position_embeddings", None)
    if task == "causal-lm" and longest and longest < examples["sequence_length"]:
        raise InputError(
            f"{where}: sees {longest} positions, data.text.sequence_length is {examples['sequence_length']}; "
            "make that smaller or take a model that sees more"
        )
