"""Tokenizers: a byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) trained here, or a pretrained one.

Both encode every byte of a document, including names of special tokens, so that decoding returns it.
"""

import json
import os
import re
import unicodedata
from collections.abc import Iterator
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, TypeGuard

from understudy.errors import InputError
from understudy.models.hub import hub_file
from understudy.recipe.data import Tokenizer as Settings

END_OF_TEXT = "<|endoftext|>"
PLACE = "data.text.tokenizer.pretrained"
CONFIG, MODEL_CONFIG = "tokenizer_config.json", "config.json"
SPECIAL = "special_tokens_map.json"
"""A file of older tokenizers; used if tokenizer_config.json lists no added tokens."""
GENERATION, TEMPLATE, TEMPLATES = "generation_config.json", "chat_template.jinja", "additional_chat_templates/*.jinja"
READ = (CONFIG, MODEL_CONFIG, SPECIAL, GENERATION, TEMPLATE, TEMPLATES)
"""Files read beside tokenizer.json; the templates of the last one only from a folder, since a hub lists no names."""
LARGEST = 16 * 2**20
"""Maximum bytes of such a file."""
TRIED, LOST = 1000, 0.01
"""Number of documents that a pretrained tokenizer is tried on, and the tolerated share of changed ones."""

LONGEST = 256  # characters without a space, or spaces in a row
LONG_RUN = re.compile(rf"(\S{{{LONGEST}}}|\s{{{LONGEST}}})")
"""Training texts are cut here, since training time is quadratic in a word's length: 3.6 s for 30,000 Chinese letters,
so minutes for 300,000. Encoding is linear, and cuts nothing."""


def train(texts: Iterator[str], vocab_size: int) -> Any:
    """Train a tokenizers.Tokenizer of 256 bytes, <|endoftext|> (id 0) and merges, with at most vocab_size tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    _use_all_cores()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(chain.from_iterable(map(pieces, texts)), trainer)
    return _without_truncation(tokenizer)


def load(path: Path) -> Any:
    """A tokenizer of an examples object, from its tokenizer.json."""
    from tokenizers import Tokenizer

    return _without_truncation(Tokenizer.from_file(str(path)))


def pieces(text: str) -> list[str]:
    """A text cut so that no word in it is longer than LONGEST; most texts stay whole."""
    return [piece for piece in LONG_RUN.split(text) if piece]


def pretrained(settings: Settings) -> tuple[Any, int, int | None]:
    """A tokenizer from a folder in the hub's format or from a hub id, and the ids of two tokens of it.

    Returns:
        The tokenizer, its end-of-text token's id, and the id of the token that it adds before a text, or None.

    Raises:
        InputError: as in loaded(), or it has no end-of-text token.
    """
    tokenizer = loaded(settings)
    return tokenizer, _end_of_text(settings, tokenizer), _begin_of_text(settings, tokenizer)


def loaded(settings: Settings) -> Any:
    """A tokenizers.Tokenizer from a folder in the hub's format or from a hub id.

    Raises:
        InputError: there is no tokenizer, it is damaged, or the hub denies access.
    """
    from tokenizers import Tokenizer

    _use_all_cores()
    path = _path(settings, "tokenizer.json")
    if path is None:
        raise InputError(
            f"{PLACE}: {settings.pretrained} has no tokenizer.json. Make one: "
            "transformers.AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
        )
    text = _decoded(settings, path)
    if "model" not in _parsed(settings, "tokenizer.json", text):
        raise InputError(f"{PLACE}: {settings.pretrained}/tokenizer.json describes no tokenizer. Fetch it again.")
    return _without_truncation(Tokenizer.from_str(text))


def check_lossless(settings: Settings, tokenizer: Any, documents: Iterator[str]) -> None:
    """Reject a tokenizer whose tokens do not decode to the documents: bits per byte would leave out lost text.

    Spaces are not compared, since some decoders put them between words, nor are forms of one character.

    Args:
        settings: the recipe's.
        tokenizer: a tokenizers.Tokenizer.
        documents: some of those to encode.

    Raises:
        InputError: more than LOST of them change.
    """
    texts = list(islice(documents, TRIED))
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    decoded = tokenizer.decode_batch([encoding.ids for encoding in encoded], skip_special_tokens=False)
    pairs = [(_bare(text), _bare(back)) for text, back in zip(texts, decoded, strict=True)]
    lost = [(text, back) for text, back in pairs if text != back]
    if len(lost) > LOST * len(texts):
        text, back = lost[0]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, back, strict=False)))
        start = max(same - 10, 0)
        raise InputError(
            f"{PLACE}: {settings.pretrained} loses text: of {len(lost):,} of {len(texts):,} documents its tokens give "
            f"back something else ({text[start : start + 30]!r} became {back[start : start + 30]!r}), so bits per byte "
            "would mean nothing. Take a tokenizer that keeps case and every character, as byte-level ones do"
        )


def _bare(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).split())


def vocabulary_size(tokenizer: Any) -> int:
    """One more than the largest id, since ids may leave gaps."""
    return int(max(tokenizer.get_vocab().values()) + 1)


def is_id(value: object, tokenizer: Any) -> TypeGuard[int]:
    """Whether a JSON value is the id of a token; true is not a number, and ids have 32 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        return False
    return tokenizer.id_to_token(value) is not None


def files(settings: Settings) -> list[Path]:
    """The files of a pretrained tokenizer, for a step's key."""
    return [path for name in ("tokenizer.json", *READ) for path in path_of(settings, name)]


def special_tokens(settings: Settings) -> dict[str, str]:
    """A pretrained tokenizer's special tokens by name (eos_token, ...), as transformers takes them from its files."""
    named = json_of(settings, CONFIG)
    if "added_tokens_decoder" not in named:
        named |= json_of(settings, SPECIAL)
    texts = {name: content(value) for name, value in named.items() if name.endswith("_token")}
    return {name: token for name, token in texts.items() if token is not None}


def content(token: object) -> str | None:
    """The text of a token, which a file has as a string, or as an object with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _without_truncation(tokenizer: Any) -> Any:
    """Encode texts as they are: without truncation or padding, a special token's name like any other text."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _end_of_text(settings: Settings, tokenizer: Any) -> int:
    token = special_tokens(settings).get("eos_token")
    ids = json_of(settings, MODEL_CONFIG).get("eos_token_id")
    id_ = tokenizer.token_to_id(token) if token is not None else ids[0] if isinstance(ids, list) and ids else ids
    if not is_id(id_, tokenizer):
        raise InputError(
            f"{PLACE}: {settings.pretrained} names no end-of-text token. "
            "Put eos_token into its tokenizer_config.json, as a token that tokenizer.json has."
        )
    return id_


def _begin_of_text(settings: Settings, tokenizer: Any) -> int | None:
    """The token that the post-processor puts before a text, or the BOS if tokenizer_config.json sets add_bos_token.

    If there are several such tokens, it is the last one.
    """
    plain, processed = (tokenizer.encode("a", add_special_tokens=added).ids for added in (False, True))
    before = next((start for start in range(len(processed)) if processed[start : start + len(plain)] == plain), 0)
    if before:
        return int(processed[before - 1])
    adds = json_of(settings, CONFIG).get("add_bos_token") is True
    token = special_tokens(settings).get("bos_token") if adds else None
    bos = None if token is None else tokenizer.token_to_id(token)
    return None if bos is None else int(bos)


def json_of(settings: Settings, name: str) -> dict[str, Any]:
    """The content of one of READ, a JSON file; empty if there is none.

    Raises:
        InputError: it is not JSON, or too large.
    """
    text = text_of(settings, name)
    return {} if text is None else _parsed(settings, name, text)


def text_of(settings: Settings, name: str) -> str | None:
    """The content of one of READ; None if there is none.

    Raises:
        InputError: as in text_in().
    """
    path = _path(settings, name)
    return None if path is None else text_in(settings, path)


def text_in(settings: Settings, path: Path) -> str:
    """The content of a file beside tokenizer.json.

    Raises:
        InputError: it is not text in UTF-8, or too large.
    """
    if path.stat().st_size > LARGEST:
        raise InputError(
            f"{PLACE}: {settings.pretrained}/{path.name} has more than {LARGEST:,} bytes; it is no such file."
        )
    return _decoded(settings, path)


def path_of(settings: Settings, name: str) -> list[Path]:
    """The paths of one of READ: none if it does not exist, and possibly several for templates."""
    if "*" in name:
        assert settings.pretrained is not None
        folder = Path(settings.pretrained).expanduser()
        return sorted(path for path in folder.glob(name) if path.is_file()) if folder.is_dir() else []
    path = _path(settings, name)
    return [] if path is None else [path]


def _parsed(settings: Settings, name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # also a number with thousands of digits, and a lone surrogate
        raise InputError(f"{PLACE}: {settings.pretrained}/{name} is not JSON ({error}). Fetch it again.") from error
    return value if isinstance(value, dict) else {}


def _decoded(settings: Settings, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{PLACE}: {settings.pretrained}/{path.name} is no text in UTF-8. Fetch it again.") from error


def _path(settings: Settings, name: str) -> Path | None:
    assert settings.pretrained is not None
    folder = Path(settings.pretrained).expanduser()
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    if folder.is_absolute() or settings.pretrained.startswith((".", "~")):
        raise InputError(f"{PLACE}: {settings.pretrained} does not exist. Give a folder that does, or a hub id.")
    return hub_file(settings.pretrained, name, settings.revision, PLACE)


def _use_all_cores() -> None:
    # Explicit, because tokenizers otherwise falls back to one core, and warns, once the process has forked. The
    # number of threads does not affect the tokens.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
