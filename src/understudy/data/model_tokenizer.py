"""The tokenizer of a pretrained model, compared with that of the examples.

A model reads and predicts ids. If its own tokenizer gives them other meanings, it learns or teaches noise, and no loss
shows why. What tokenizers do is compared, not the bytes of their files: ids, the tokens of texts, the token that ends a
text, and conversations as the chat template writes them. A model that is trained on the examples learns their end and
their template; one that is used as it is knows its own only.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from understudy.data import tokenizer as tokenizers
from understudy.data.chat_mask import chat_tokenizer
from understudy.data.chat_template import ChatTemplate, Message
from understudy.data.chat_turn import quoted
from understudy.data.tokenizer import GENERATION, MODEL_CONFIG, PLACE, is_id, json_of, special_tokens
from understudy.errors import InputError
from understudy.models.facts import TOKENIZER, Facts, predicts_tokens, read_facts
from understudy.models.hub import Unreachable
from understudy.recipe.data import Tokenizer as Settings

TEXTS = (
    "Hello, world! It's 3.14159 at 10:45 on 2024-02-29; 1234567890.",
    "  two  spaces\tand\ttabs \n\nlines\r\n    indented ",
    "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m e\u0301 \ufb01 \u00bd",
    "\u65e5\u672c\u8a9e \u4e2d\u6587 \ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0939\u093f",
    "\U0001f600\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u00a0\u200b",
    "def f(x):\n    return x ** 2  # ALL CAPS mixedCase snake_case",
)
"""Texts on which normalisers and pre-tokenizers differ: spaces, digits, newlines, accents, scripts, emoji, case."""
USER, ANSWER = {"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Three, I think."}
SYSTEM = {"role": "system", "content": "Be brief."}
CONVERSATIONS: tuple[list[Message], ...] = (
    [USER],
    [SYSTEM, USER],
    [USER, ANSWER],
    [USER, ANSWER, USER],
    [SYSTEM, USER, ANSWER, USER, ANSWER],
)
"""Conversations on which chat templates differ; those that end with a question are rendered as prompts."""


class Misfit(NamedTuple):
    """A difference between a model's tokenizer and that of the examples."""

    reason: str
    is_learned: bool
    """Whether a model that is trained on the examples learns it."""


class _Compared(NamedTuple):
    """The tokenizers of a model and of the examples."""

    settings: Settings
    model: Any
    data: Any
    facts: Facts
    examples: Path


def has_tokenizer(settings: Settings, key_path: str) -> bool:
    """Whether there is a tokenizer.json to compare.

    Raises:
        InputError: the hub denies access, or cannot be reached.
    """
    with _at(key_path):
        return bool(tokenizers.path_of(settings, "tokenizer.json"))


def misfits(
    settings: Settings, examples: Path, texts: Sequence[str], key_path: str, *, chats: bool
) -> Iterator[Misfit]:
    """The differences between a model's tokenizer and that of the examples, the most important ones first.

    Args:
        settings: the folder or hub id of the model, which has a tokenizer.json.
        examples: the examples object that the model is used on.
        texts: some of the examples' own texts.
        key_path: the model's path in the recipe, for errors.
        chats: whether the examples are conversations.

    Raises:
        InputError: one of the model's files is damaged.
    """
    with _at(key_path):
        tokenizer, data_tokenizer = tokenizers.loaded(settings), tokenizers.load(examples / TOKENIZER)
        if chats and (template := ChatTemplate.from_folder(examples)):
            tokenizer, data_tokenizer = (chat_tokenizer(template, plain) for plain in (tokenizer, data_tokenizer))
        compared = _Compared(settings, tokenizer, data_tokenizer, read_facts(examples), examples)
        yield from _vocabulary(tokenizer, data_tokenizer)
        yield from _encodings(compared, texts)
        if not predicts_tokens(compared.facts):
            yield from _padding(compared)
            return
        yield from _end(compared)
        yield from _template(compared) if chats else _begin(compared)


@contextmanager
def _at(key_path: str) -> Iterator[None]:
    """Put errors in reading a model's tokenizer at the model's path in the recipe, within the context."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{key_path}: {str(error).removeprefix(f'{PLACE}: ')}") from error


def _vocabulary(model: Any, data: Any) -> Iterator[Misfit]:
    """Ids that are different tokens, and tokens of the examples that the model does not have."""
    theirs, ours = ({id_: token for token, id_ in each.get_vocab().items()} for each in (model, data))
    shared = sorted(theirs.keys() & ours.keys())
    if different := [id_ for id_ in shared if theirs[id_] != ours[id_]]:
        first = different[0]
        yield Misfit(
            f"token {first} is {theirs[first]!r} in its tokenizer and {ours[first]!r} in that of the data "
            f"({len(different):,} of {len(shared):,} differ)",
            is_learned=False,
        )
    elif missing := sorted(ours.keys() - theirs.keys()):
        first = missing[0]
        yield Misfit(f"its tokenizer has no {ours[first]!r}, which is token {first} of the data", is_learned=True)


def _encodings(compared: _Compared, texts: Sequence[str]) -> Iterator[Misfit]:
    """A text with different tokens. Texts with a token that the model does not have are left out.

    Models that predict labels get the special tokens around a text, too.
    """
    model, data, around = compared.model, compared.data, not predicts_tokens(compared.facts)
    added = [token.content for token in data.get_added_tokens_decoder().values()]
    missing = [token for token in added if model.token_to_id(token) is None]
    special = " ".join(f"a{token} {token}b" for token in added if token not in missing)
    chosen = [text for text in (*TEXTS, special, *texts) if not any(token in text for token in missing)]
    inputs = [*chosen, *([(text, "b") for text in chosen[:1]] if around else [])]
    theirs, ours = (each.encode_batch(inputs, add_special_tokens=around) for each in (model, data))
    for text, their, our in zip(inputs, theirs, ours, strict=True):
        if their.ids != our.ids:
            pairs = zip_longest(zip(their.tokens, their.ids, strict=True), zip(our.tokens, our.ids, strict=True))
            one, other = next((one, other) for one, other in pairs if one != other)
            yield Misfit(
                f"in the text {quoted(text if isinstance(text, str) else text[0])} its tokenizer has {_token(one)} "
                f"where that of the data has {_token(other)}",
                is_learned=False,
            )
            return


def _token(pair: tuple[str, int] | None) -> str:
    return "no further token" if pair is None else f"{pair[0]!r} ({pair[1]})"


def _padding(compared: _Compared) -> Iterator[Misfit]:
    """Another token for padding: some architectures count positions by it."""
    token = special_tokens(compared.settings).get("pad_token")
    theirs = None if token is None else compared.model.token_to_id(token)
    if theirs is not None and theirs != (ours := compared.facts.get("special_ids", {}).get("pad_token_id")):
        yield _role("pad_token", theirs, ours, compared)


def _end(compared: _Compared) -> Iterator[Misfit]:
    """Another token at the end of a document or an answer than all of those that end the model's texts."""
    model, settings, end = compared.model, compared.settings, compared.facts["eos_id"]
    named, data_named = (special_tokens(each).get("eos_token") for each in (settings, _of_examples(compared)))
    config = json_of(settings, MODEL_CONFIG)
    text_config = config.get("text_config")
    ids: list[object] = [None if named is None else model.token_to_id(named)]
    for values in (config, text_config if isinstance(text_config, dict) else {}, json_of(settings, GENERATION)):
        value = values.get("eos_token_id")
        ids += value if isinstance(value, list) else [value]
    ends = [id_ for id_ in ids if is_id(id_, model)]
    if ends and end not in ends and (named is None or named != data_named):
        yield _role("eos_token", ends[0], end, compared)


def _begin(compared: _Compared) -> Iterator[Misfit]:
    """Another first token of documents than the one that the model's tokenizer adds."""
    try:
        _, _, first = tokenizers.pretrained(compared.settings)
    except Unreachable:
        raise
    except InputError:  # it names no end-of-text token, which leaves nothing to compare
        return
    theirs = None if first == compared.facts["eos_id"] else first
    if theirs != (ours := compared.facts.get("bos_id")):
        yield _role("bos_token", theirs, ours, compared)


def _role(name: str, theirs: int | None, ours: int | None, compared: _Compared) -> Misfit:
    def token(tokenizer: Any, id_: int | None) -> str:
        return "nothing" if id_ is None else f"{tokenizer.id_to_token(id_)!r} ({id_})"

    reason = f"its {name} is {token(compared.model, theirs)}, and that of the data is {token(compared.data, ours)}"
    return Misfit(reason, is_learned=name != "pad_token")


def _of_examples(compared: _Compared) -> Settings:
    return Settings(pretrained=str(compared.examples.absolute()))


def _template(compared: _Compared) -> Iterator[Misfit]:
    """A conversation that the model's own chat template writes in another way.

    Conversations that a template refuses, such as those with a system prompt, are not compared; nor is a template that
    does not run here, for example since it reads the clock.
    """
    theirs, ours = ChatTemplate.of(compared.settings), ChatTemplate.of(_of_examples(compared))
    if theirs is None or ours is None:
        return
    for messages in CONVERSATIONS:
        texts = [_rendered(template, messages) for template in (theirs, ours)]
        if None not in texts and texts[0] != texts[1]:
            lines = [str(text).splitlines(keepends=True) for text in texts]
            one, other = next(pair for pair in zip_longest(*lines, fillvalue="") if pair[0] != pair[1])
            reason = f"its chat template writes {one[:80]!r} where that of the data writes {other[:80]!r}"
            yield Misfit(reason, is_learned=True)
            return


def _rendered(template: ChatTemplate, messages: list[Message]) -> str | None:
    try:
        return template.render(messages, add_generation_prompt=messages[-1]["role"] == "user")
    except InputError:
        return None
