"""The tokenizer of texts that a model takes one by one: it puts special tokens around them, and pads them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from understudy.data import tokenizer as tokenizers
from understudy.data import tokenizer_files
from understudy.errors import InputError
from understudy.models.facts import TOKENIZER, read_facts
from understudy.recipe.data import Tokenizer

BEGIN, SEPARATOR = "<|begin|>", "<|separator|>"
"""Special tokens of a tokenizer that is trained here: before a text, and after each of two."""


def write(section: Tokenizer, texts: Iterable[str], folder: Path) -> tuple[Any, int]:
    """Write a trained or pretrained tokenizer and its configuration; returns it, and the id of its padding.

    Args:
        section: the recipe's.
        texts: those of the training split.
        folder: output folder.

    Raises:
        InputError: the pretrained tokenizer is not available, or has no token for padding.
    """
    if section.pretrained is None:
        tokenizer, tokens = _trained(section.vocab_size, texts)
    else:
        tokenizer = tokenizers.loaded(section)
        named = tokenizers.special_tokens(section).items()
        tokens = {name: token for name, token in named if tokenizer.token_to_id(token) is not None}
        if "pad_token" not in tokens and "eos_token" not in tokens:
            raise InputError(
                f"{tokenizers.PLACE}: {section.pretrained} has no token for padding. Put pad_token into its "
                "tokenizer_config.json, as a token that tokenizer.json has."
            )
        tokens.setdefault("pad_token", tokens.get("eos_token", ""))
    config = {"tokenizer_class": tokenizer_files.CLASS, "clean_up_tokenization_spaces": False, **tokens}
    (folder / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    tokenizer_files.write(folder, {tokenizers.CONFIG: json.dumps(config, indent=1, sort_keys=True) + "\n"})
    return tokenizer, int(tokenizer.token_to_id(tokens["pad_token"]))


def copy(examples: Path, folder: Path) -> tuple[Any, int]:
    """Copy the tokenizer of other examples; returns it, and the id of its padding."""
    tokenizer_files.copy(examples, folder)
    return tokenizers.load(examples / TOKENIZER), read_facts(examples)["special_ids"]["pad_token_id"]


def readable(examples: Path, tokens: Any, padding: int, texts: int = 1) -> str:
    """The text of a model's input, without padding; the special tokens around a single text are left out.

    Args:
        examples: the folder of an `examples` object.
        tokens: a row of the array of inputs.
        padding: the id of the padding.
        texts: the number of texts in a row; special tokens tell two apart.
    """
    tokenizer = tokenizers.load(examples / TOKENIZER)
    hidden = {padding, *(tokenizer.encode("").ids if texts == 1 else ())}
    return str(tokenizer.decode([token for token in tokens.tolist() if token not in hidden], skip_special_tokens=False))


def _trained(vocab_size: int, texts: Iterable[str]) -> tuple[Any, dict[str, str]]:
    """A new tokenizer, and the names of its special tokens.

    The end-of-text token, which has the id 0, is the padding, as architectures have it by default.
    """
    from tokenizers.processors import TemplateProcessing

    tokenizer = tokenizers.train(iter(texts), vocab_size - 2)
    tokenizer.add_special_tokens([BEGIN, SEPARATOR])
    tokenizer.post_processor = TemplateProcessing(
        single=[BEGIN, "$A", SEPARATOR],
        pair=[BEGIN, "$A", SEPARATOR, "$B:1", f"{SEPARATOR}:1"],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (BEGIN, SEPARATOR)],
    )
    return tokenizer, {"cls_token": BEGIN, "sep_token": SEPARATOR, "pad_token": tokenizers.END_OF_TEXT}
