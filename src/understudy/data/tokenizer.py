"""Text to tokens: a byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) of our own, or a pretrained one.

Both encode every byte of a document, the names of special tokens in it included, so that decoding returns it.
"""

import json
import os
import re
import unicodedata
from collections.abc import Iterator
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

from understudy.errors import InputError
from understudy.models.hub import hub_file
from understudy.recipe.data import Tokenizer as Settings

END_OF_TEXT = "<|endoftext|>"
PLACE = "data.text.tokenizer.pretrained"
TRIED, LOST = 1000, 0.01
"""Documents that a pretrained tokenizer is tried on, and the share of them that may come back changed."""

LONGEST = 256  # characters without a space, or spaces in a row
LONG_RUN = re.compile(rf"(\S{{{LONGEST}}}|\s{{{LONGEST}}})")
"""What a tokenizer is trained on is cut here, since training takes the square of a word's length: 3.6 s for 30,000
Chinese letters, so minutes for 300,000. Encoding is linear, and cuts nothing.
"""


def train(texts: Iterator[str], vocab_size: int) -> Any:
    """A tokenizers.Tokenizer with 256 bytes, <|endoftext|> (id 0) and merges up to vocab_size tokens, or as many as
    the texts give.
    """
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
    return _whole(tokenizer)


def pieces(text: str) -> list[str]:
    """A text cut so that no word in it is longer than LONGEST; mostly it is whole."""
    return [piece for piece in LONG_RUN.split(text) if piece]


def pretrained(settings: Settings) -> tuple[Any, int, int | None]:
    """The tokenizer of a folder in the hub's format or of a hub id, its end-of-text token's id, and that of the token
    that it adds before a text, if it adds one.

    Raises:
        InputError: there is none, it is damaged, it names no end-of-text token, or the hub does not give it out.
    """
    from tokenizers import Tokenizer

    _use_all_cores()
    text = _text(settings, "tokenizer.json")
    if text is None:
        raise InputError(
            f"{PLACE}: {settings.pretrained} has no tokenizer.json. Make one: "
            "transformers.AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
        )
    if "model" not in _json(settings, "tokenizer.json", text):
        raise InputError(f"{PLACE}: {settings.pretrained}/tokenizer.json describes no tokenizer. Fetch it again.")
    tokenizer = _whole(Tokenizer.from_str(text))
    return tokenizer, _end_of_text(settings, tokenizer), _begin_of_text(settings, tokenizer)


def check_lossless(settings: Settings, tokenizer: Any, documents: Iterator[str]) -> None:
    """Refuse a tokenizer whose tokens do not give documents back: bits per byte would leave out what is lost.

    Spaces are not compared, which some decoders put between words, nor are forms of one character.

    Args:
        settings: of the recipe.
        tokenizer: of the tokenizers library.
        documents: some of those that it is to encode.

    Raises:
        InputError: more than LOST of them do not come back.
    """
    texts = list(islice(documents, TRIED))
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    decoded = tokenizer.decode_batch([found.ids for found in encoded], skip_special_tokens=False)
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
    """One more than the largest id: ids may leave gaps."""
    return int(max(tokenizer.get_vocab().values()) + 1)


def files(settings: Settings) -> list[Path]:
    """What a pretrained tokenizer is read from, for a step's key."""
    names = ("tokenizer.json", "tokenizer_config.json", "config.json")
    paths = (_path(settings, name) for name in names)
    return [path for path in paths if path is not None]


def _whole(tokenizer: Any) -> Any:
    """Encode texts as they are: not cut, not padded, a special token's name as any other text."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _end_of_text(settings: Settings, tokenizer: Any) -> int:
    config = _json(settings, "tokenizer_config.json", _text(settings, "tokenizer_config.json") or "{}")
    token = config.get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    model = _json(settings, "config.json", _text(settings, "config.json") or "{}")
    ids = model.get("eos_token_id")
    id_ = tokenizer.token_to_id(token) if token is not None else ids[0] if isinstance(ids, list) else ids
    if id_ is None:
        raise InputError(
            f"{PLACE}: {settings.pretrained} names no end-of-text token. "
            "Put eos_token into its tokenizer_config.json, as a token that tokenizer.json has."
        )
    return int(id_)


def _begin_of_text(settings: Settings, tokenizer: Any) -> int | None:
    """What its post-processor puts before a text; or the BOS, where tokenizer_config.json says that it is added.

    Of several such tokens it is the last one.
    """
    plain, whole = (tokenizer.encode("a", add_special_tokens=added).ids for added in (False, True))
    before = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)
    if before:
        return int(whole[before - 1])
    config = _json(settings, "tokenizer_config.json", _text(settings, "tokenizer_config.json") or "{}")
    token = config.get("bos_token") if config.get("add_bos_token") is True else None
    token = token.get("content") if isinstance(token, dict) else token
    found = tokenizer.token_to_id(token) if isinstance(token, str) else None
    return None if found is None else int(found)


def _json(settings: Settings, name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{PLACE}: {settings.pretrained}/{name} is not JSON ({error}). Fetch it again.") from error
    return value if isinstance(value, dict) else {}


def _text(settings: Settings, name: str) -> str | None:
    path = _path(settings, name)
    return path.read_text(encoding="utf-8") if path is not None else None


def _path(settings: Settings, name: str) -> Path | None:
    assert settings.pretrained is not None
    folder = Path(settings.pretrained).expanduser()
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    if folder.is_absolute() or settings.pretrained.startswith((".", "~")):
        raise InputError(f"{PLACE}: {settings.pretrained} does not exist. Give a folder that does, or a hub id.")
    return hub_file(settings.pretrained, name, settings.revision, PLACE)


def _use_all_cores() -> None:
    # Said aloud, because tokenizers otherwise falls back to one core, and warns, once the process has forked. The
    # number of threads has no say in the tokens.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
