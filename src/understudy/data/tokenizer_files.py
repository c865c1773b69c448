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
KEPT: Mapping[str, tuple[type, ...]] = {
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
    said = json_of(settings, CONFIG)
    tokens = {name: token for name, token in special_tokens(settings).items() if _known(tokenizer, token)}
    tokens.setdefault("eos_token", tokenizer.id_to_token(end))
    config = {"tokenizer_class": CLASS, **_kept(settings, said), **_extra(said, tokenizer), **tokens}
    if (prefix := _prefix(tokenizer)) is not None:
        config["add_prefix_space"] = prefix
    ids, files = _ids(settings, tokenizer, tokens, end), dict[str, str]()
    if templates := _templates(settings, said):
        alone = templates["default"] if templates.keys() == {"default"} else None
        named = [{"name": name, "template": text} for name, text in sorted(templates.items())]
        config["chat_template"] = named if alone is None else alone
        if alone is not None:
            files[TEMPLATE] = alone
    return {**files, CONFIG: _text(config), GENERATION: _text(_generation(settings, tokenizer, ids, end))}, ids


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _known(tokenizer: Any, token: str) -> bool:
    """Whether a token is in the vocabulary; a server would add an unknown one, for which no model has a row."""
    return tokenizer.token_to_id(token) is not None


def _kept(settings: Settings, said: Mapping[str, Any]) -> dict[str, Any]:
    """The allowed settings of tokenizer_config.json."""
    found = {name: said[name] for name in KEPT if said.get(name) is not None}
    for name, value in found.items():
        if not _is(value, KEPT[name]):
            raise _wrong(settings, CONFIG, name, value)
    for name in ("model_input_names", "chat_control_tokens"):
        values = said.get(name)
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            found[name] = values
    return found


def _is(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether a JSON value has one of these types; true is not a number, and a number is finite."""
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) and not (isinstance(value, float) and not math.isfinite(value))


def _extra(said: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Special tokens without a name, and those that a model's authors have named."""
    lists = [said.get(name) for name in ("additional_special_tokens", "extra_special_tokens")]
    named = [said.get(name) for name in ("extra_special_tokens", "model_specific_special_tokens")]
    tokens = dict.fromkeys(content(one) for values in lists if isinstance(values, list) for one in values)
    found: dict[str, Any] = {}
    if several := [one for one in tokens if one is not None and _known(tokenizer, one)]:
        found["additional_special_tokens"] = several
    for values in named:
        if isinstance(values, dict):
            names = {name for name in values if name.endswith("_token")} - KEPT.keys()
            pairs = ((name, content(values[name])) for name in sorted(names))
            found |= {name: token for name, token in pairs if token is not None and _known(tokenizer, token)}
    return found


def _prefix(tokenizer: Any) -> bool | None:
    """Whether tokenizer.json puts a space before a text; transformers 4 would take this from the configuration."""
    state = json.loads(tokenizer.to_str()).get("pre_tokenizer") or {}
    found = state.get("add_prefix_space")
    return found if isinstance(found, bool) else None


def _templates(settings: Settings, said: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name; separate files come before those of tokenizer_config.json."""
    own = said.get("chat_template")
    whole = text_of(settings, TEMPLATE)
    named = {path.stem: text_in(settings, path) for path in path_of(settings, TEMPLATES)}
    if whole is not None or named:
        found: Any = dict(named)
        found |= {} if whole is None else {"default": whole}
    elif isinstance(own, list) and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in own):
        found = {one["name"]: one.get("template") for one in own}
    else:
        found = own if isinstance(own, dict) else {} if own is None else {"default": own}
    if not all(isinstance(text, str) for text in found.values()):
        raise _wrong(settings, CONFIG, "chat_template", own)
    if (size := sum(len(text.encode()) for text in found.values())) > LONGEST_TEMPLATES:
        raise InputError(
            f"{PLACE}: the chat templates of {settings.pretrained} have {size:,} bytes, and {LONGEST_TEMPLATES:,} are "
            "the most; take out what no server needs"
        )
    return dict(found)


def _ids(settings: Settings, tokenizer: Any, tokens: Mapping[str, str], end: int) -> SpecialIds:
    """The ids of bos, eos and pad from config.json of the tokenizer's model, otherwise from the tokenizer."""
    model = json_of(settings, MODEL_CONFIG)
    text = model.get("text_config")
    model = {**(text if isinstance(text, dict) else {}), **{key: one for key, one in model.items() if one is not None}}
    ids: SpecialIds = {"eos_token_id": end}
    several = _valid(model.get("eos_token_id"), tokenizer)
    if end in several:
        ids["eos_token_id"] = several if isinstance(model["eos_token_id"], list) else end
    bos = _valid(model.get("bos_token_id"), tokenizer)
    pad = _valid(model.get("pad_token_id"), tokenizer)
    if bos or "bos_token" in tokens:
        ids["bos_token_id"] = bos[0] if bos else int(tokenizer.token_to_id(tokens["bos_token"]))
    if pad or "pad_token" in tokens:
        ids["pad_token_id"] = pad[0] if pad else int(tokenizer.token_to_id(tokens["pad_token"]))
    return ids


def _valid(value: object, tokenizer: Any) -> list[int]:
    """The valid token ids of a single id or a list."""
    return [one for one in (value if isinstance(value, list) else [value]) if is_id(one, tokenizer)]


def _generation(settings: Settings, tokenizer: Any, ids: SpecialIds, end: int) -> dict[str, Any]:
    """The content of generation_config.json; without such a file, that which transformers derives from config.json."""
    if path_of(settings, GENERATION) == []:
        return dict(ids)
    said = {name: value for name, value in json_of(settings, GENERATION).items() if value is not None}
    found: dict[str, Any] = {}
    for name, value in said.items():
        if name in FLAGS or name in COUNTS or name in NUMBERS:
            if not _can_be(name, value):
                raise _wrong(settings, GENERATION, name, value)
            found[name] = value
        elif name in ID + IDS and (valid := _valid(value, tokenizer)):
            found[name] = valid if name in IDS or isinstance(value, list) else valid[0]
    found |= _sequences(said, tokenizer)
    stops = said.get("stop_strings")
    if isinstance(stops, str) or (isinstance(stops, list) and all(isinstance(stop, str) for stop in stops)):
        found["stop_strings"] = stops
    found.setdefault("eos_token_id", end)
    return found


def _can_be(name: str, value: Any) -> bool:
    """Whether a setting of generation may have a value."""
    if name in FLAGS or name in COUNTS:
        return _is(value, (bool,) if name in FLAGS else (int,)) and value >= COUNTS.get(name, 0)
    if not _is(value, (int, float)):
        return False
    if name in SHARES:
        return bool(0 <= value <= 1)
    if name in PENALTIES:
        return bool(value > 0)
    return name != "temperature" or bool(value >= 0)


def _sequences(said: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """bad_words_ids and sequence_bias: token sequences, taken if all of their tokens exist."""

    def whole(tokens: object) -> bool:
        return isinstance(tokens, list) and 0 < len(tokens) == len(_valid(tokens, tokenizer))

    bad, biased = said.get("bad_words_ids"), said.get("sequence_bias")
    words = [one for one in bad if whole(one)] if isinstance(bad, list) else []
    pairs = [one for one in biased if isinstance(one, list) and len(one) == 2] if isinstance(biased, list) else []
    pairs = [one for one in pairs if whole(one[0]) and _is(one[1], (float,))]
    return {**({"bad_words_ids": words} if words else {}), **({"sequence_bias": pairs} if pairs else {})}


def _wrong(settings: Settings, name: str, key: str, value: object) -> InputError:
    return InputError(
        f"{PLACE}: {settings.pretrained}/{name} has {key}: {str(value)[:60]!r}, which no tokenizer or model can have. "
        "Correct it, or take it out."
    )


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files beside tokenizer.json."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
