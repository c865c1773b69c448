"""The proof that tokens of a conversation are an answer: the prompt before it, the assistant's words, and their end."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from understudy.data.added_tokens import Boundary, Delimiters, TokenTexts
from understudy.data.chat_template import ChatTemplate, Message
from understudy.errors import InputError, printable

THOUGHTS = re.compile(r"\s*<think>(.*?)</think>", re.DOTALL)
"""The thoughts of a reasoning model, before its answer."""
QUOTED = 60
"""Maximum characters of a text in a message."""


class Unproved(InputError):
    """It is not proved which tokens of a conversation are an answer."""


class SpecialTokenInText(Unproved):
    """A message has the text of a special token, which would end its turn: a reason to leave the conversation out."""


class CrossesBoundary(Unproved):
    """A prompt's tokens are others if an answer follows: a reason to leave the conversation out.

    One token has the end of the prompt and the beginning of the answer, or the prompt's white space is split otherwise.
    """


class Turn(NamedTuple):
    """The tokens of an answer: ids[start:stop]."""

    message: int
    """The index of its message."""
    start: int
    stop: int
    end: int | None
    """The special token ids[stop], which ends the answer."""


class ChatTokens:
    """A tokenizer of a chat template, and its added tokens, in a form that serves all conversations.

    Args:
        template: the chat template.
        tokenizer: from chat_tokenizer().
    """

    def __init__(self, template: ChatTemplate, tokenizer: Any) -> None:
        assert not tokenizer.encode_special_tokens
        self.template, self.tokenizer = template, tokenizer
        added = tokenizer.get_added_tokens_decoder().values()
        named = {text for text in template.special_tokens.values() if tokenizer.token_to_id(text) is not None}
        self.special = TokenTexts({token.content for token in added if token.special} | named)
        """The texts of special tokens, and of those that the template has by name."""
        self.added = TokenTexts({token.content for token in added})
        """A tokenizer finds added tokens in a text before it splits the rest."""
        self.delimiters = Delimiters(tokenizer)


class Rendered:
    """A conversation, its text and tokens, and the spans of characters that the template marks."""

    def __init__(
        self,
        tokens: ChatTokens,
        messages: Sequence[Message],
        text: str,
        spans: list[tuple[int, int]] | None,
        ids: list[int],
        *,
        needs_end: bool,
    ) -> None:
        self.tokens, self.messages = tokens, messages
        self.text, self.ids, self.spans = text, ids, spans
        self.needs_end = needs_end
        """Whether an answer without a token that ends it is an error."""
        self.answers: dict[tuple[int, int, str], Turn] = {}
        """Proved answers, by the index of their message, where they begin, and the text up to this turn."""
        self._beginnings = {len(messages) - 1: text}

    @cached_property
    def boundaries(self) -> list[Boundary]:
        """The delimiters in the text."""
        return self.tokens.delimiters.boundaries(self.text, self.ids)

    def check_texts(self, special: TokenTexts) -> None:
        """Reject messages that have the text of a special token.

        Raises:
            SpecialTokenInText: one has.
        """
        if not special.first("\0".join(text for message in self.messages for text in _texts(message))):
            return
        for index, message in enumerate(self.messages):
            for text in _texts(message):
                if match := next((token for token in special.texts if token in text), None):
                    raise SpecialTokenInText(
                        f"turn {index + 1}: its text has the special token {quoted(match)}, which would end the turn. "
                        "Leave the conversation out, or remove the token."
                    )

    def upto(self, index: int) -> str:
        """The text of the conversation up to a turn."""
        if index not in self._beginnings:
            beginning = self.messages[: index + 1]
            self._beginnings[index] = self.tokens.template.render(beginning, add_generation_prompt=False)
        return self._beginnings[index]

    def decoded(self, turn: Turn) -> str:
        """The text of a turn's tokens."""
        return str(self.tokens.tokenizer.decode(self.ids[turn.start : turn.stop], skip_special_tokens=False))


def prompted_turn(rendered: Rendered, index: int) -> Turn:
    """The tokens after the prompt that a student is asked with.

    Raises:
        Unproved: the conversation does not begin with the prompt, or does not continue with the answer.
    """
    if index == 0:
        raise Unproved("turn 1 is the assistant's, and no prompt comes before it. Leave the turn out.")
    prompt = rendered.tokens.template.render(rendered.messages[:index], add_generation_prompt=True)
    if not rendered.text.startswith(prompt):
        raise _changed(rendered, index, prompt)
    upto = rendered.upto(index)
    return _answer(rendered, index, len(prompt), upto)


def marked_turn(rendered: Rendered, index: int) -> Turn:
    """The tokens that the template's marks make an answer.

    Raises:
        Unproved: there is not one mark for each answer, or it has not the answer.
    """
    assert rendered.spans is not None
    answers = [i for i, message in enumerate(rendered.messages) if message.get("role") == "assistant"]
    if len(rendered.spans) != len(answers):
        raise Unproved(
            f"{{% generation %}} marks {len(rendered.spans)} answers, and the conversation has {len(answers)}. Give a "
            "template that marks each answer once, or none."
        )
    start, stop = rendered.spans[answers.index(index)]
    upto = rendered.upto(index)
    return _answer(rendered, index, start, upto if rendered.text.startswith(upto) else rendered.text[:stop])


def quoted(text: str) -> str:
    """The beginning of a text, for a message."""
    return f"'{printable(text[:QUOTED])}'" + ("..." if len(text) > QUOTED else "")


def _texts(message: object) -> Iterator[str]:
    """All texts in a message, those in lists and mappings included."""
    if isinstance(message, str):
        yield message
    elif type(message) is dict or isinstance(message, Mapping):
        for item in message.items():
            for part in item:
                if type(part) is str:
                    yield part
                else:
                    yield from _texts(part)
    elif isinstance(message, list | tuple):
        yield from (text for value in message for text in _texts(value))


def _changed(rendered: Rendered, index: int, expected: str) -> Unproved:
    text = rendered.text
    same = next((n for n, (a, b) in enumerate(zip(expected, text, strict=False)) if a != b), len(text))
    start = max(same - 20, 0)
    last = max(i for i, message in enumerate(rendered.messages) if message.get("role") == "assistant")
    fix = "Set loss_on: last, or give another template." if index != last else "Give another template."
    return Unproved(
        f"turn {index + 1}: the chat template changes the text before or in this answer when later turns follow: "
        f"{quoted(expected[start:])} became {quoted(text[start:])}. {fix}"
    )


def _answer(rendered: Rendered, index: int, start: int, upto: str) -> Turn:
    """The tokens of the answer that begins at character `start` of a text.

    Args:
        rendered: the conversation.
        index: of the answer's message.
        start: in characters.
        upto: the text up to this turn; only in it the answer's end is looked for.
    """
    key = index, start, upto
    if key not in rendered.answers:
        rendered.answers[key] = _proved(rendered, index, start, upto)
    return rendered.answers[key]


def _proved(rendered: Rendered, index: int, start: int, upto: str) -> Turn:
    place, token = _end(rendered, upto, start)
    if not _is_answer(upto[start:place], rendered.messages[index]):
        raise _other_words(index, upto[start:])
    if not rendered.text.startswith(upto[: place + len(token)]):
        raise _changed(rendered, index, upto[: place + len(token)])
    if not token and rendered.needs_end:
        raise InputError(
            f"turn {index + 1}: the chat template writes no special token after an answer, so a student would never "
            "learn to stop. Give a template that ends answers."
        )
    ids, first = rendered.ids, _tokens(rendered, index, start)
    if token:
        end = rendered.tokens.tokenizer.token_to_id(token)
        if end not in ids[first:]:
            raise _crosses(index, upto[start:place] + token)
        turn = Turn(index, first, ids.index(end, first), end)
    else:
        turn = Turn(index, first, _tokens(rendered, index, place), None)
    if _composed(rendered.decoded(turn)) != _composed(upto[start:place]):
        raise Unproved(
            f"turn {index + 1}: the tokens of {quoted(upto[start:place])} decode to {quoted(rendered.decoded(turn))}. "
            "Give a tokenizer that keeps every character."
        )
    return turn


def _composed(text: str) -> str:
    """A text without white space around it, and with one form of each character: some tokenizers compose them."""
    return unicodedata.normalize("NFC", text).strip()


def _end(rendered: Rendered, upto: str, start: int) -> tuple[int, str]:
    """The first special token after a character, otherwise an added token that ends the text; its place and text.

    Without one, it is the place after the last character that is not white space, and no text.
    """
    special = rendered.tokens.special
    if first := special.first(upto, start):
        if _is_blank(upto[first[0] + len(first[1]) :], special):
            return first
    else:
        places = ((upto.find(text, start), text) for text in rendered.tokens.added.texts)
        for place, _, text in sorted((place, -len(text), text) for place, text in places if place >= 0):
            if _is_blank(upto[place + len(text) :], special):
                return place, text
    return start + len(upto[start:].rstrip()), ""


def _is_blank(text: str, special: TokenTexts) -> bool:
    """Whether a text is white space and special tokens alone."""
    if text.strip():
        for token in special.texts:
            text = text.replace(token, "")
    return not text.strip()


def _is_answer(text: str, message: Message) -> bool:
    """Whether a text is an answer that is not empty: thoughts and content, but for white space around them."""
    content = message.get("content")
    if not isinstance(content, str) or not content.strip():
        return False
    if text.strip() == content.strip():
        return True
    reasoning = message.get("reasoning_content") or ""
    thoughts, answer = _split(content)
    return _split(text) == (thoughts or str(reasoning).strip(), answer)


def _split(text: str) -> tuple[str, str]:
    """The thoughts between <think> and </think> at the beginning of a text, and the rest of it."""
    match = THOUGHTS.match(text)
    return ("", text.strip()) if match is None else (match[1].strip(), text[match.end() :].strip())


def _tokens(rendered: Rendered, index: int, stop: int) -> int:
    """The number of tokens of the conversation up to a character.

    Raises:
        CrossesBoundary: a token has characters on both sides of it.
    """
    count = rendered.tokens.delimiters.tokens_before(stop, rendered.text, rendered.ids, rendered.boundaries)
    if count is None:
        raise _crosses(index, rendered.text[max(stop - QUOTED // 2, 0) : stop])
    return count


def _crosses(index: int, text: str) -> CrossesBoundary:
    return CrossesBoundary(
        f"turn {index + 1}: a token crosses the boundary of prompt and answer, or its end, at {quoted(text)}. Leave "
        "the conversation out, remove white space at the answer's ends, or give another template."
    )


def _other_words(index: int, text: str) -> Unproved:
    return Unproved(
        f"turn {index + 1}: the chat template made {quoted(text)} of the answer, and not just the assistant's words. "
        "Give the words as the template writes them, another template, or one with {% generation %} marks."
    )
