"""The files of a chat server beside tokenizer.json: special tokens, the chat template, settings of generation.

An allowlist decides which settings of a pretrained tokenizer's files are taken: they may contain code (auto_map),
paths of another machine, and tokens that no model here has. A chat template is a program that a server runs, in the
sandbox of transformers; here it is text, and never rendered.
"""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.data.tokenizer import (
    CONFIG,
    END_OF_TEXT,
    GENERATION,
    MODEL_CONFIG,
    PLACE,
    TEMPLATE,
    TEMPLATES,
    content,
    is_id,
    json_of,
    path_of,
    special_tokens,
    text_in,
    text_of,
)
from understudy.errors import InputError
from understudy.models.facts import TOKENIZER_FILES, SpecialIds
from understudy.recipe.data import Tokenizer as Settings

LONGEST_TEMPLATES = 256 * 2**10
"""Maximum bytes of all chat templates together; a server compiles them. Those on the hub have 1 to 30 KB."""
CLASS = "PreTrainedTokenizerFast"
"""It reads tokenizer.json unchanged. A class for one model (LlamaTokenizer) applies other rules instead."""
ALLOWED: Mapping[str, tuple[type, ...]] = {
    "add_bos_token": (bool,),
    "add_eos_token": (bool,),
    "clean_up_tokenization_spaces": (bool,),
    "split_special_tokens": (bool,),
    "model_max_length": (int, float),
    "padding_side": (str,),
    "truncation_side": (str,),
}
"""Allowed settings of tokenizer_config.json, and their types."""
COUNTS = {"max_length": 1, "max_new_tokens": 1, "num_beams": 1, "num_return_sequences": 1}
COUNTS |= {"min_length": 0, "min_new_tokens": 0, "top_k": 0, "no_repeat_ngram_size": 0}
SHARES = {"top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"}
PENALTIES = {"repetition_penalty", "encoder_repetition_penalty"}
NUMBERS = {"length_penalty", "guidance_scale", "temperature", *SHARES, *PENALTIES}
FLAGS = {"do_sample", "renormalize_logits", "remove_invalid_values"}
ID = ("bos_token_id", "eos_token_id", "pad_token_id", "forced_bos_token_id", "forced_eos_token_id")
IDS = ("suppress_tokens", "begin_suppress_tokens")
"""Allowed settings of generation_config.json: whole numbers and their minimum, other numbers and which of them are
from 0 to 1 or above 0, flags, a token or several, tokens."""


def copy(examples: Path, folder: Path) -> None:
    """Copy the tokenizer of an examples object with the files beside it."""
    for name in TOKENIZER_FILES:
        if (examples / name).exists():
            shutil.copyfile(examples / name, folder / name)


def of_trained() -> dict[str, str]:
    """The files beside a tokenizer that a recipe has trained, by name."""
    tokens = dict.fromkeys(("bos_token", "eos_token", "pad_token"), END_OF_TEXT)
    config = {"tokenizer_class": CLASS, "add_prefix_space": False, "clean_up_tokenization_spaces": False, **tokens}
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    return {CONFIG: _text(config), GENERATION: _text(ids)}


def of_pretrained(settings: Settings, tokenizer: Any, end: int) -> tuple[dict[str, str], SpecialIds]:
    """The files beside a pretrained tokenizer, by name, and the special tokens for config.json of a model.

    Args:
        settings: the recipe's.
        tokenizer: a tokenizers.Tokenizer.
        end: the id of its end-of-text token.

    Raises:
        InputError: a file is damaged, has an impossible value, or is too long.
    """
    tokenizer_config = json_of(settings, CONFIG)
    tokens = {name: token for name, token in special_tokens(settings).items() if _is_in_vocabulary(tokenizer, token)}
    tokens.setdefault("eos_token", tokenizer.id_to_token(end))
    config = {
        "tokenizer_class": CLASS,
        **_allowed_settings(settings, tokenizer_config),
        **_extra_tokens(tokenizer_config, tokenizer),
        **tokens,
    }
    if (prefix := _prefix(tokenizer)) is not None:
        config["add_prefix_space"] = prefix
    ids, files = _ids(settings, tokenizer, tokens, end), dict[str, str]()
    if templates := _templates(settings, tokenizer_config):
        only_template = templates["default"] if templates.keys() == {"default"} else None
        named = [{"name": name, "template": text} for name, text in sorted(templates.items())]
        config["chat_template"] = named if only_template is None else only_template
        if only_template is not None:
            files[TEMPLATE] = only_template
    return {**files, CONFIG: _text(config), GENERATION: _text(_generation(settings, tokenizer, ids, end))}, ids


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _is_in_vocabulary(tokenizer: Any, token: str) -> bool:
    """Whether a token is in the vocabulary; a server would add an unknown one, for which no model has a row."""
    return tokenizer.token_to_id(token) is not None


def _allowed_settings(settings: Settings, config: Mapping[str, Any]) -> dict[str, Any]:
    """The allowed settings of tokenizer_config.json."""
    allowed = {name: config[name] for name in ALLOWED if config.get(name) is not None}
    for name, value in allowed.items():
        if not _has_type(value, ALLOWED[name]):
            raise _invalid(settings, CONFIG, name, value)
    for name in ("model_input_names", "chat_control_tokens"):
        values = config.get(name)
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            allowed[name] = values
    return allowed


def _has_type(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether a JSON value has one of these types; true is not a number, and a number is finite."""
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) and not (isinstance(value, float) and not math.isfinite(value))


def _extra_tokens(config: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Special tokens without a name, and those that a model's authors have named."""
    lists = [config.get(name) for name in ("additional_special_tokens", "extra_special_tokens")]
    named_tokens = [config.get(name) for name in ("extra_special_tokens", "model_specific_special_tokens")]
    tokens = dict.fromkeys(content(token) for values in lists if isinstance(values, list) for token in values)
    extra: dict[str, Any] = {}
    if unnamed := [token for token in tokens if token is not None and _is_in_vocabulary(tokenizer, token)]:
        extra["additional_special_tokens"] = unnamed
    for values in named_tokens:
        if isinstance(values, dict):
            names = {name for name in values if name.endswith("_token")} - ALLOWED.keys()
            pairs = ((name, content(values[name])) for name in sorted(names))
            extra |= {name: token for name, token in pairs if token is not None and _is_in_vocabulary(tokenizer, token)}
    return extra


def _prefix(tokenizer: Any) -> bool | None:
    """Whether tokenizer.json puts a space before a text; transformers 4 would take this from the configuration."""
    state = json.loads(tokenizer.to_str()).get("pre_tokenizer") or {}
    prefix = state.get("add_prefix_space")
    return prefix if isinstance(prefix, bool) else None


def _templates(settings: Settings, config: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name; separate files come before those of tokenizer_config.json."""
    default = text_of(settings, TEMPLATE)
    templates: dict[str, Any] = {path.stem: text_in(settings, path) for path in path_of(settings, TEMPLATES)}
    if default is not None:
        templates["default"] = default
    templates = templates or _configured_templates(config.get("chat_template"))
    if not all(isinstance(text, str) for text in templates.values()):
        raise _invalid(settings, CONFIG, "chat_template", config.get("chat_template"))
    if (size := sum(len(text.encode()) for text in templates.values())) > LONGEST_TEMPLATES:
        raise InputError(
            f"{PLACE}: the chat templates of {settings.pretrained} have {size:,} bytes, more than the maximum of "
            f"{LONGEST_TEMPLATES:,}; remove those that no server needs"
        )
    return templates


def _configured_templates(value: Any) -> dict[str, Any]:
    """The templates by name in tokenizer_config.json: a mapping, a list of {name, template}, or one template."""
    if value is None:
        return {}
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value):
        return {item["name"]: item.get("template") for item in value}
    return dict(value) if isinstance(value, dict) else {"default": value}


def _ids(settings: Settings, tokenizer: Any, tokens: Mapping[str, str], end: int) -> SpecialIds:
    """The ids of bos, eos and pad from config.json of the tokenizer's model, otherwise from the tokenizer."""
    config = json_of(settings, MODEL_CONFIG)
    text_config = config.get("text_config")
    config = {key: value for key, value in config.items() if value is not None}
    if isinstance(text_config, dict):
        config = {**text_config, **config}
    ids: SpecialIds = {"eos_token_id": end}
    end_ids = _valid_ids(config.get("eos_token_id"), tokenizer)
    if end in end_ids:
        ids["eos_token_id"] = end_ids if isinstance(config["eos_token_id"], list) else end
    bos = _valid_ids(config.get("bos_token_id"), tokenizer)
    pad = _valid_ids(config.get("pad_token_id"), tokenizer)
    if bos or "bos_token" in tokens:
        ids["bos_token_id"] = bos[0] if bos else int(tokenizer.token_to_id(tokens["bos_token"]))
    if pad or "pad_token" in tokens:
        ids["pad_token_id"] = pad[0] if pad else int(tokenizer.token_to_id(tokens["pad_token"]))
    return ids


def _valid_ids(value: object, tokenizer: Any) -> list[int]:
    """The valid token ids of a single id or a list."""
    return [id_ for id_ in (value if isinstance(value, list) else [value]) if is_id(id_, tokenizer)]


def _generation(settings: Settings, tokenizer: Any, ids: SpecialIds, end: int) -> dict[str, Any]:
    """The content of generation_config.json; without such a file, that which transformers derives from config.json."""
    if path_of(settings, GENERATION) == []:
        return dict(ids)
    values = {name: value for name, value in json_of(settings, GENERATION).items() if value is not None}
    generation: dict[str, Any] = {}
    for name, value in values.items():
        if name in FLAGS or name in COUNTS or name in NUMBERS:
            if not _is_valid(name, value):
                raise _invalid(settings, GENERATION, name, value)
            generation[name] = value
        elif name in ID + IDS and (valid := _valid_ids(value, tokenizer)):
            generation[name] = valid if name in IDS or isinstance(value, list) else valid[0]
    generation |= _sequences(values, tokenizer)
    stops = values.get("stop_strings")
    if isinstance(stops, str) or (isinstance(stops, list) and all(isinstance(stop, str) for stop in stops)):
        generation["stop_strings"] = stops
    generation.setdefault("eos_token_id", end)
    return generation


def _is_valid(name: str, value: Any) -> bool:
    """Whether a setting of generation may have a value."""
    if name in FLAGS or name in COUNTS:
        return _has_type(value, (bool,) if name in FLAGS else (int,)) and value >= COUNTS.get(name, 0)
    if not _has_type(value, (int, float)):
        return False
    if name in SHARES:
        return bool(0 <= value <= 1)
    if name in PENALTIES:
        return bool(value > 0)
    return name != "temperature" or bool(value >= 0)


def _sequences(values: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """bad_words_ids and sequence_bias: token sequences, taken if all of their tokens exist."""

    def is_valid(tokens: object) -> bool:
        return isinstance(tokens, list) and 0 < len(tokens) == len(_valid_ids(tokens, tokenizer))

    bad_words, sequence_bias = values.get("bad_words_ids"), values.get("sequence_bias")
    words = [item for item in bad_words if is_valid(item)] if isinstance(bad_words, list) else []
    items = sequence_bias if isinstance(sequence_bias, list) else []
    pairs = [item for item in items if isinstance(item, list) and len(item) == 2]
    pairs = [pair for pair in pairs if is_valid(pair[0]) and _has_type(pair[1], (float,))]
    return {**({"bad_words_ids": words} if words else {}), **({"sequence_bias": pairs} if pairs else {})}


def _invalid(settings: Settings, name: str, key: str, value: object) -> InputError:
    return InputError(
        f"{PLACE}: {settings.pretrained}/{name} has {key}: {str(value)[:60]!r}, which is not valid. "
        "Correct it, or remove it."
    )


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files beside tokenizer.json."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
