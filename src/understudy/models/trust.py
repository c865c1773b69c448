"""Trust in saved models: they run the recipe's code only, and their descriptions are compared with the recipe.

A rank writes its model's files, and the process that builds the model later may have more rights than the rank. So the
description comes from the recipe. A pretrained model's description exists in its files only; these must not name code
that the recipe does not trust.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from understudy.errors import UnderstudyError
from understudy.models.adapter_config import adapters_match
from understudy.models.facts import (
    ADAPTERS,
    ADAPTERS_CONFIG,
    CONFIG,
    DESCRIPTION,
    TOKENIZER,
    TOKENIZER_FILES,
    Description,
    Facts,
    data_settings,
    described_facts,
    read_description,
    read_facts,
)
from understudy.recipe import ArchitectureModel, FactoryModel, Model, PretrainedModel, Train
from understudy.recipe.roles import CHAMPION, section_of
from understudy.store.files import read_json

FACTORY = re.compile(r"[\w.]+:\w+")
ABSENT = object()
"""Stands for a missing key; null is a value."""


def trusted_descriptions(
    folders: Mapping[str, Path], models: Mapping[str, Model], examples: Path
) -> dict[str, Description]:
    """Descriptions of saved models by role, after a comparison of their folders with the recipe.

    Args:
        folders: the saved models' folders by role: teacher, student, control, champion.
        models: the recipe's model sections, by their paths.
        examples: the examples object that they were trained on; a champion may have been trained on another.

    Raises:
        UnderstudyError: a folder does not match the recipe, or names code that the recipe does not trust.
    """
    sections = {role: section_of(role) for role in folders if role != CHAMPION}
    descriptions = {
        role: trusted_description(folders[role], models[section], examples, section)
        for role, section in sections.items()
    }
    for role in folders.keys() - sections.keys():
        descriptions[role] = trusted_champion(folders[role], models, descriptions.values())
    return {role: descriptions[role] for role in folders}


def trusted_description(folder: Path, model: Model, examples: Path, section: str) -> Description:
    """The description of a saved model that was trained for a section of the recipe.

    Args:
        folder: the saved model's.
        model: the section.
        examples: the examples object that it was trained on.
        section: the model's path in the recipe, for errors.

    Raises:
        UnderstudyError: the folder does not match the section.
    """
    facts = read_facts(examples)
    description = _read(folder)
    if isinstance(model, PretrainedModel):
        _check_pretrained(description, model, facts, folder, section)
    else:
        from understudy.models.describe import describe

        expected = json.loads(json.dumps(describe(model, facts, section)))
        if description != expected:
            raise _refusal(folder, f"is no {section} of this recipe ({_difference(description, expected)})")
    _check_tokenizer(folder, examples)
    return description


def check_delivered(folder: Path, model: Model, train: Train, examples: Path, section: str) -> None:
    """Compare the model files that ranks wrote with the recipe, as far as possible without torch and the model's code.

    The ranks that evaluate the model compare everything, but their results cannot be trusted either.

    Args:
        folder: the model's files.
        model: its section of the recipe.
        train: the settings that it was trained with.
        examples: the examples object that it was trained on.
        section: the model's path in the recipe, for errors.

    Raises:
        UnderstudyError: the files name code that the recipe does not, or do not match it otherwise.
    """
    facts, description = read_facts(examples), _read(folder)
    _check_tokenizer(folder, examples)
    if not adapters_match(folder, model, train.lora, facts):
        raise _refusal(
            folder, f"is not beside the adapters of {section} of this recipe ({ADAPTERS_CONFIG}, {ADAPTERS})"
        )
    if isinstance(model, PretrainedModel):
        _check_pretrained(description, model, facts, folder, section)
        return
    fact_values: Mapping[str, object] = described_facts(facts)
    if isinstance(model, FactoryModel):
        section_key, expected = "kwargs", {**fact_values, "kind": "factory", "factory": model.factory}
    else:
        section_key, expected = "config", {**fact_values, "kind": "transformers"}
    compared = {key: value for key, value in description.items() if key != section_key}
    if compared != expected:
        raise _refusal(folder, f"is no {section} of this recipe ({_difference(compared, expected)})")
    if not _matches_section(description, model, facts, folder):
        raise _refusal(folder, f"has another {section_key} than {section} of this recipe")


def _matches_section(description: Mapping[str, Any], model: Model, facts: Facts, folder: Path) -> bool:
    """Whether a factory's arguments are the recipe's, or a configuration is of the right type and names no code."""
    saved_config = read_json(folder / CONFIG)
    if isinstance(model, FactoryModel):
        allowed, kwargs = {**data_settings(facts), **model.kwargs}, description.get("kwargs")
        matches = isinstance(kwargs, dict) and {**allowed, **kwargs} == allowed and {**kwargs, **model.kwargs} == kwargs
        return matches and saved_config is None
    config = description["config"]
    is_same_type = isinstance(model, ArchitectureModel) and config.get("model_type") == model.type
    return is_same_type and isinstance(saved_config, dict) and not [*_auto_maps(config), *_auto_maps(saved_config)]


def trusted_champion(folder: Path, models: Mapping[str, Model], trusted: Iterable[Description]) -> Description:
    """The description of a champion, a saved model of another recipe. It may run this recipe's code only.

    Args:
        folder: the saved model's.
        models: the recipe's model sections, by their paths.
        trusted: trusted descriptions, whose code may run.

    Raises:
        UnderstudyError: the description names other code.
    """
    description = _read(folder)
    factories = {model.factory for model in models.values() if isinstance(model, FactoryModel)}
    if description["kind"] == "factory" and description["factory"] not in factories:
        raise _code_refusal(f"{description['factory']}, which this recipe does not name")
    if description["kind"] == "transformers" and _code_references(description) not in [
        (None, []),
        *map(_code_references, trusted),
    ]:
        raise _code_refusal("code of its own, which no model of this recipe has")
    return description


def _code_references(description: Mapping[str, Any]) -> tuple[object, list[object]]:
    """A model's bundled code, and its configuration's references to code: in the folder, at any path, or on a hub."""
    return description.get("code"), list(_auto_maps(description.get("config")))


def _auto_maps(config: object) -> Iterator[object]:
    if isinstance(config, dict):
        for key, value in config.items():
            if key == "auto_map":
                yield value
            yield from _auto_maps(value)
    elif isinstance(config, list):
        for value in config:
            yield from _auto_maps(value)


def _read(folder: Path) -> Description:
    """A folder's understudy.json; it is checked for a valid kind of model."""
    try:
        description = read_description(folder)
        is_valid = description["kind"] == "factory" and bool(FACTORY.fullmatch(description["factory"]))
        is_valid = is_valid or (description["kind"] == "transformers" and isinstance(description["config"], dict))
    except FileNotFoundError as error:
        raise _refusal(folder, "does not exist") from error
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise _refusal(folder, "does not describe a model") from error
    if not is_valid:
        raise _refusal(folder, "does not describe a model")
    return description


def _check_pretrained(
    description: Description, model: PretrainedModel, facts: Facts, folder: Path, section: str
) -> None:
    if description["kind"] != "transformers":
        raise _refusal(folder, f"names the code {description['factory']}, and {section} is a pretrained model")
    if "code" in description and not model.trust_remote_code:
        raise _refusal(folder, f"has code of its own, and {section} does not set trust_remote_code: true")
    values = described_facts(facts)
    expected = {key: value for key, value in values.items() if key not in ("mean", "std")}  # set by the model's files
    if any(description.get(key) != value for key, value in expected.items()):
        raise _refusal(folder, "is a model of other examples")


def same_tokenizer(*folders: Path) -> bool:
    """Whether all folders have the same tokenizer, byte for byte, or none; equal vocabulary sizes prove nothing."""
    return len({_bytes(folder / TOKENIZER) for folder in folders}) == 1


def _check_tokenizer(folder: Path, examples: Path) -> None:
    """Refuse a changed tokenizer or a changed file beside it: a chat template is a program that a server runs."""
    for name in TOKENIZER_FILES:
        if len({_bytes(folder / name), _bytes(examples / name)}) != 1:
            raise UnderstudyError(
                f"{folder / name}: differs from the examples' file. understudy did not save it like this: move the "
                "folder away, and run again to create the model anew"
            )


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _difference(description: Mapping[str, object], expected: Mapping[str, object]) -> str:
    """The first key in which two descriptions differ."""
    for key in sorted(description.keys() | expected.keys()):
        values = description.get(key, ABSENT), expected.get(key, ABSENT)
        if values[0] != values[1]:
            return f"{key}: {_short(values[0])} instead of {_short(values[1])}"
    raise AssertionError("equal descriptions differ")


def _short(value: object) -> str:
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _refusal(folder: Path, reason: str) -> UnderstudyError:
    return UnderstudyError(
        f"{folder / DESCRIPTION}: {reason}, so none of its code runs. understudy did not save it like this: move the "
        "folder away, and run again to create the model anew"
    )


def _code_refusal(code: str) -> UnderstudyError:
    return UnderstudyError(
        f"the champion runs {code}: a model in the registry may not choose the code that runs here. Give the alias "
        "champion to a version that this recipe's code builds, remove the alias, or set register.model to another name"
    )
