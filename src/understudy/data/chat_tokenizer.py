"""The tokenizer of conversations with its chat template, and the files of both for chat servers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from understudy.data import conversations, tokenizer_files
from understudy.data import tokenizer as tokenizers
from understudy.data.chat_mask import chat_tokenizer
from understudy.data.chat_template import CHATML, ChatTemplate
from understudy.data.records import read
from understudy.errors import InputError
from understudy.models.facts import TOKENIZER, SpecialIds, read_facts
from understudy.recipe.data import Chat
from understudy.recipe.data import Tokenizer as Settings

BEGIN_TURN, END_TURN = "<|im_start|>", "<|im_end|>"
"""Special tokens of a tokenizer that is trained here, as ChatML names them."""


def write(settings: Settings, chat: Chat, records: Path, folder: Path) -> tuple[Any, SpecialIds]:
    """Write a trained or pretrained tokenizer with its template; returns it, and its special tokens for config.json.

    Args:
        settings: the recipe's, of the tokenizer.
        chat: the recipe's.
        records: the folder of a `records` object.
        folder: output folder.

    Raises:
        InputError: the tokenizer is not available or loses text, or there is no template.
    """
    if settings.pretrained is None:
        tokenizer = tokenizers.train(_texts(records), settings.vocab_size - 2)
        tokenizer.add_special_tokens([BEGIN_TURN, END_TURN])
        files, ids = _of_trained(tokenizer)
    else:
        tokenizer, end, _ = tokenizers.pretrained(settings)
        tokenizers.check_lossless(settings, tokenizer, _texts(records))
        files, ids = tokenizer_files.of_pretrained(settings, tokenizer, end)
    config = json.loads(files[tokenizers.CONFIG])
    template = _template(settings, chat, config)
    config["chat_template"] = template
    config.pop("split_special_tokens", None)  # with it servers would encode the template's markers as text
    files |= {tokenizers.TEMPLATE: template, tokenizers.CONFIG: json.dumps(config, indent=1, sort_keys=True) + "\n"}
    (folder / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    tokenizer_files.write(folder, files)
    return chat_tokenizer(template_of(folder), tokenizer), ids


def copy(examples: Path, folder: Path) -> tuple[Any, SpecialIds]:
    """Copy the tokenizer of other examples with its template; returns it, and its special tokens."""
    tokenizer_files.copy(examples, folder)
    return chat_tokenizer(template_of(folder), tokenizers.load(examples / TOKENIZER)), read_facts(examples).get(
        "special_ids", {}
    )


def template_of(folder: Path) -> ChatTemplate:
    """The template that `write` or `copy` has put into a folder."""
    template = ChatTemplate.from_folder(folder)
    assert template is not None
    return template


def write_end(folder: Path, end: int) -> None:
    """Let servers stop at the token that ends a turn."""
    path = folder / tokenizers.GENERATION
    generation = json.loads(path.read_text(encoding="utf-8"))
    ends = generation.get("eos_token_id", [])
    others = [id_ for id_ in (ends if isinstance(ends, list) else [ends]) if id_ != end]
    generation["eos_token_id"] = [end, *others] if others else end
    path.write_text(json.dumps(generation, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _texts(records: Path) -> Iterator[str]:
    """The messages of the training split."""
    rows = (row for batch in read(records, "train") for row in batch)
    return (message["content"] for row in rows for message in conversations.messages(row.content))


def _of_trained(tokenizer: Any) -> tuple[dict[str, str], SpecialIds]:
    """The files beside a tokenizer that is trained here, and its special tokens."""
    files = tokenizer_files.of_trained()
    config = json.loads(files[tokenizers.CONFIG])
    del config["bos_token"]
    config |= {"eos_token": END_TURN, "additional_special_tokens": [BEGIN_TURN]}
    end, padding = int(tokenizer.token_to_id(END_TURN)), int(tokenizer.token_to_id(tokenizers.END_OF_TEXT))
    ids: SpecialIds = {"eos_token_id": end, "pad_token_id": padding}
    return {tokenizers.CONFIG: json.dumps(config), tokenizers.GENERATION: json.dumps(ids)}, ids


def _template(settings: Settings, chat: Chat, config: dict[str, Any]) -> str:
    """The recipe's template, the tokenizer's own, or ChatML."""
    if chat.template:
        return _read(Path(chat.template))
    if settings.pretrained is None:
        return CHATML.text
    template = config.get("chat_template")
    if isinstance(template, list):
        template = next((entry["template"] for entry in template if entry["name"] == "default"), None)
    if not isinstance(template, str):
        raise InputError(
            f"{tokenizers.PLACE}: {settings.pretrained} has no chat template. Give a file with one as "
            "data.chat.template, written with this tokenizer's special tokens."
        )
    return template


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > tokenizer_files.LONGEST_TEMPLATES:
            most = tokenizer_files.LONGEST_TEMPLATES
            raise InputError(f"data.chat.template: {path} has more than {most:,} bytes; it is no template")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"data.chat.template: {path} is no text in UTF-8") from error
    except OSError as error:
        raise InputError(f"data.chat.template: {path}: {error.strerror}. Give a file with a chat template") from error
