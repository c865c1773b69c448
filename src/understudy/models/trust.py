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
from understudy.models.adapter_config import fits
from understudy.models.facts import (
    ADAPTERS,
    ADAPTERS_CONFIG,
    CONFIG,
    DESCRIPTION,
    TOKENIZER,
    TOKENIZER_FILES,
    Description,
    Facts,
    about,
    read_description,
    read_facts,
    shape_of,
)
from understudy.recipe import ArchitectureModel, FactoryModel, Model, PretrainedModel, Train
from understudy.recipe.roles import CHAMPION, section_of
from understudy.store.files import read_json

FACTORY = re.compile(r"[\w.]+:\w+")
ABSENT = object()
"""In place of a key's value: null is a value."""


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
        descriptions[role] = trusted_stranger(folders[role], models, descriptions.values())
    return {role: descriptions[role] for role in folders}


def trusted_description(folder: Path, model: Model, examples: Path, where: str) -> Description:
    """The description of a saved model that was trained for a section of the recipe.

    Args:
        folder: the saved model's.
        model: the section.
        examples: the examples object that it was trained on.
        where: the section's path in the recipe, for errors.

    Raises:
        UnderstudyError: the folder does not match the section.
    """
    facts = read_facts(examples)
    found = _read(folder)
    if isinstance(model, PretrainedModel):
        _check_pretrained(found, model, facts, folder, where)
    else:
        from understudy.models.describe import describe

        expected = json.loads(json.dumps(describe(model, facts, where)))
        if found != expected:
            raise _refusal(folder, f"is no {where} of this recipe ({_difference(found, expected)})")
    _check_tokenizer(folder, examples)
    return found


def check_delivered(folder: Path, model: Model, train: Train, examples: Path, where: str) -> None:
    """Compare the model files that ranks wrote with the recipe, as far as possible without torch and the model's code.

    The ranks that evaluate a model compare all of it, but their results cannot be trusted either.

    Args:
        folder: the model's files.
        model: its section of the recipe.
        train: the settings that it was trained with.
        examples: the examples object that it was trained on.
        where: the section's path in the recipe, for errors.

    Raises:
        UnderstudyError: the files name code that the recipe does not, or do not match it otherwise.
    """
    facts, found = read_facts(examples), _read(folder)
    _check_tokenizer(folder, examples)
    if not fits(folder, model, train.lora, facts):
        raise _refusal(folder, f"is not beside the adapters of {where} of this recipe ({ADAPTERS_CONFIG}, {ADAPTERS})")
    if isinstance(model, PretrainedModel):
        _check_pretrained(found, model, facts, folder, where)
        return
    own: Mapping[str, object] = about(facts)
    if isinstance(model, FactoryModel):
        rest, expected = "kwargs", {**own, "kind": "factory", "factory": model.factory}
    else:
        rest, expected = "config", {**own, "kind": "transformers"}
    said = {key: value for key, value in found.items() if key != rest}
    if said != expected:
        raise _refusal(folder, f"is no {where} of this recipe ({_difference(said, expected)})")
    if not _fits(found, model, facts, folder):
        raise _refusal(folder, f"has another {rest} than {where} of this recipe")


def _fits(found: Mapping[str, Any], model: Model, facts: Facts, folder: Path) -> bool:
    """Whether a factory's arguments are the recipe's, or a configuration is the architecture's and names no code."""
    beside = read_json(folder / CONFIG)
    if isinstance(model, FactoryModel):
        known, given = {**shape_of(facts), **model.kwargs}, found.get("kwargs")
        fits = isinstance(given, dict) and {**known, **given} == known and {**given, **model.kwargs} == given
        return fits and beside is None
    config = found["config"]
    named = isinstance(model, ArchitectureModel) and config.get("model_type") == model.type
    return named and isinstance(beside, dict) and not [*_auto_maps(config), *_auto_maps(beside)]


def trusted_stranger(folder: Path, models: Mapping[str, Model], ours: Iterable[Description]) -> Description:
    """The description of a champion, a saved model of another recipe. It may run this recipe's code only.

    Args:
        folder: the saved model's.
        models: the recipe's model sections, by their paths.
        ours: trusted descriptions, whose code may run.

    Raises:
        UnderstudyError: the description names other code.
    """
    found = _read(folder)
    factories = {model.factory for model in models.values() if isinstance(model, FactoryModel)}
    if found["kind"] == "factory" and found["factory"] not in factories:
        raise _code_refusal(f"{found['factory']}, which this recipe does not name")
    if found["kind"] == "transformers" and _own_code(found) not in [(None, []), *map(_own_code, ours)]:
        raise _code_refusal("code of its own, which no model of this recipe brings")
    return found


def _own_code(description: Mapping[str, Any]) -> tuple[object, list[object]]:
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
        found = read_description(folder)
        known = found["kind"] == "factory" and bool(FACTORY.fullmatch(found["factory"]))
        known = known or (found["kind"] == "transformers" and isinstance(found["config"], dict))
    except FileNotFoundError as error:
        raise _refusal(folder, "does not exist") from error
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise _refusal(folder, "says of no model what it is") from error
    if not known:
        raise _refusal(folder, "says of no model what it is")
    return found


def _check_pretrained(found: Description, model: PretrainedModel, facts: Facts, folder: Path, where: str) -> None:
    if found["kind"] != "transformers":
        raise _refusal(folder, f"names the code {found['factory']}, and {where} is a pretrained model")
    if "code" in found and not model.trust_remote_code:
        raise _refusal(folder, f"brings code of its own, and {where} does not say trust_remote_code: true")
    own = about(facts)
    said = {key: value for key, value in own.items() if key not in ("mean", "std")}  # set by the model's files
    if any(found.get(key) != value for key, value in said.items()):
        raise _refusal(folder, "is of other examples")


def same_tokenizer(*folders: Path) -> bool:
    """Whether all folders have the same tokenizer, byte for byte, or none; equal vocabulary sizes prove nothing."""
    return len({_bytes(folder / TOKENIZER) for folder in folders}) == 1


def _check_tokenizer(folder: Path, examples: Path) -> None:
    """Refuse a changed tokenizer or a changed file beside it: a chat template is a program that a server runs."""
    for name in TOKENIZER_FILES:
        if len({_bytes(folder / name), _bytes(examples / name)}) != 1:
            raise UnderstudyError(
                f"{folder / name}: is not that of the examples. The model was not saved so; move its folder "
                "away, and run again: it is made anew"
            )


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _difference(found: Mapping[str, object], expected: Mapping[str, object]) -> str:
    """The first key in which two descriptions differ."""
    for key in sorted(found.keys() | expected.keys()):
        values = found.get(key, ABSENT), expected.get(key, ABSENT)
        if values[0] != values[1]:
            return f"{key}: {_short(values[0])} instead of {_short(values[1])}"
    raise AssertionError("equal descriptions differ")


def _short(value: object) -> str:
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _refusal(folder: Path, why: str) -> UnderstudyError:
    return UnderstudyError(
        f"{folder / DESCRIPTION}: {why}, so nothing of it is run. The model was not saved so; move its folder "
        "away, and run again: it is made anew"
    )


def _code_refusal(what: str) -> UnderstudyError:
    return UnderstudyError(
        f"the champion runs {what}: a model in the registry does not decide what runs here. Give the alias champion "
        "to a version that this recipe's code builds, remove the alias, or set register.model to another name"
    )
