"""Conversations as tokens, and which of them are learned from, proved for each conversation.

A student is asked with the prompt that the template makes of the turns before an answer, and has to continue with the
answer and the token that ends it. So an answer's tokens are learned from only if the whole conversation's text and its
tokens begin with that prompt, and continue with the assistant's words up to that token. Nothing is searched for by a
marker or guessed from a template's name. Without a proof there is an error.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from understudy.data.added_tokens import TokenTexts
from understudy.data.chat_template import ChatTemplate, Message
from understudy.data.chat_turn import (
    ChatTokens,
    CrossesBoundary,
    Rendered,
    SpecialTokenInText,
    Turn,
    Unproved,
    marked_turn,
    prompted_turn,
    quoted,
)

__all__ = [
    "ChatEncoder",
    "Conversation",
    "CrossesBoundary",
    "Rendered",
    "SpecialTokenInText",
    "Text",
    "Unproved",
    "chat_tokenizer",
]

LossOn = Literal["assistant", "last", "all"]
"""Tokens that are learned from: answers, the last answer, or all tokens but the first."""


class Conversation(NamedTuple):
    """A conversation as tokens."""

    ids: list[int]
    learned: list[bool]
    """Whether a token is a target of training."""
    end: int | None
    """The token that ends the last answer; None if nothing ends it, or if that is not proved."""
    answer: tuple[int, int]
    """Where the tokens of the last answer begin and end; (0, 0) if there is none, or if that is not proved."""


class Text(NamedTuple):
    """A conversation's text, and the spans of characters that the template marks; None if it has no marks."""

    text: str
    spans: list[tuple[int, int]] | None


def chat_tokenizer(template: ChatTemplate, tokenizer: Any) -> Any:
    """A copy of a tokenizers.Tokenizer that recognises special tokens in texts, and neither cuts nor pads them.

    Those that the template has by name are special, as in transformers, if they are in the vocabulary.
    """
    copy = type(tokenizer).from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = False
    copy.add_special_tokens([text for text in template.special_tokens.values() if copy.token_to_id(text) is not None])
    return copy


class ChatEncoder:
    """Conversations as tokens, as transformers' apply_chat_template(tokenize=True) encodes them.

    A conversation's text is rendered and encoded once. Each answer takes two more texts, the prompt before it and the
    conversation up to it, whose tokens follow from those of the conversation (added_tokens.py).

    Args:
        template: the chat template.
        tokenizer: from chat_tokenizer().
        loss_on: which tokens are learned from.
        train_on_eos: whether the token that ends an answer is learned from, too; `all` includes it anyway.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Any, loss_on: LossOn, train_on_eos: bool) -> None:
        self._template, self._tokenizer = template, tokenizer
        self._loss_on, self._train_on_eos = loss_on, train_on_eos
        self._tokens = ChatTokens(template, tokenizer)

    def text(self, messages: Sequence[Message]) -> Text:
        """The text of a conversation.

        Raises:
            TemplateRefuses: the template refuses the conversation.
            InputError: the template is damaged.
        """
        if self._template.has_marks:
            return Text(*self._template.marked(messages))
        return Text(self._template.render(messages, add_generation_prompt=False), None)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text. The tokenizer uses all cores for it, and does not hold Python's lock."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def rendered(self, messages: Sequence[Message]) -> Rendered:
        """A conversation as text and tokens.

        Raises:
            TemplateRefuses: the template refuses the conversation.
            InputError: the template is damaged, or there are no messages.
        """
        if not messages:
            raise Unproved("the conversation has no messages. Leave it out.")
        text = self.text(messages)
        return self.encoded(messages, text, *self.ids([text.text]))

    def encoded(self, messages: Sequence[Message], text: Text, ids: list[int]) -> Rendered:
        """The same of a conversation whose text and tokens are there."""
        return Rendered(self._tokens, messages, *text, ids, needs_end=self._loss_on != "all")

    def cut(self, rendered: Rendered, length: int) -> Rendered | None:
        """The longest beginning of a conversation that ends with an answer and has at most `length` tokens.

        Args:
            rendered: the conversation.
            length: in tokens.

        Returns:
            The beginning, or None if not even the first answer fits.

        Raises:
            TemplateRefuses: the template refuses the conversation.
            InputError: the template is damaged.
        """
        messages = rendered.messages
        for count in range(len(messages), 1, -1):
            if messages[count - 1].get("role") == "assistant":
                beginning = rendered if count == len(messages) else self.rendered(messages[:count])
                if len(beginning.ids) <= length:
                    return beginning
        return None

    def masked(self, rendered: Rendered) -> Conversation:
        """Prove which tokens of a conversation to learn from.

        White space around an answer that the template adds or removes is the template's: a student that is asked with
        the prompt has to write it. So is the frame of an empty thinking block.

        Args:
            rendered: the conversation; the turns of the assistant have a text as their content.

        Raises:
            SpecialTokenInText: a message has a special token's text, which would end its turn. Leave it out.
            CrossesBoundary: one token has the end of a prompt and the beginning of the answer. Leave it out.
            Unproved: the answers are not in the text as the assistant gave them, for a reason that the message gives.
            TemplateRefuses: the template refuses the conversation.
            InputError: the template is damaged, or nothing ends an answer.
        """
        rendered.check_texts(rendered.tokens.special)
        answers = [index for index, message in enumerate(rendered.messages) if message.get("role") == "assistant"]
        if self._loss_on == "all":
            learned, last = [False, *[True] * (len(rendered.ids) - 1)], _last(rendered, answers)
            answer, end = ((last.start, last.stop), last.end) if last else ((0, 0), None)
            return Conversation(rendered.ids, learned[: len(rendered.ids)], end, answer)
        if not answers:
            raise Unproved("the conversation has no answer of the assistant, so nothing to learn from. Leave it out.")
        turns = [_turn(rendered, index) for index in (answers[-1:] if self._loss_on == "last" else answers)]
        learned = _mask(rendered, turns, self._train_on_eos)
        return Conversation(rendered.ids, learned, turns[-1].end, (turns[-1].start, turns[-1].stop))


def _turn(rendered: Rendered, index: int) -> Turn:
    """The tokens of an answer, proved by the prompt before it, and by the template's marks if it has them."""
    if rendered.spans is None:
        turn = prompted_turn(rendered, index)
    else:
        turn, prompted = marked_turn(rendered, index), prompted_turn(rendered, index)
        if prompted != turn:
            raise Unproved(
                f"turn {index + 1}: {{% generation %}} marks {quoted(rendered.decoded(turn))} as the answer, but asked "
                f"with the prompt a student has to write {quoted(rendered.decoded(prompted))}. Correct the marks, or "
                "remove them."
            )
    if turn.start == 0:
        raise Unproved(f"turn {index + 1}: the chat template writes nothing before the answer. Give another template.")
    if turn.end is not None:
        end = rendered.tokens.tokenizer.id_to_token(turn.end)
        if end not in rendered.tokens.special.texts:
            rendered.check_texts(TokenTexts([end]))
    return turn


def _mask(rendered: Rendered, turns: list[Turn], train_on_eos: bool) -> list[bool]:
    learned = [False] * len(rendered.ids)
    for turn in turns:
        stop = turn.stop + train_on_eos
        learned[turn.start : stop] = [True] * (stop - turn.start)
    if all(learned) or not any(learned):
        share = "all" if any(learned) else "none"
        raise Unproved(f"{share} of the tokens would be learned from. Leave the conversation out.")
    return learned


def _last(rendered: Rendered, answers: list[int]) -> Turn | None:
    """The last answer; None if it is not proved."""
    try:
        return _turn(rendered, answers[-1]) if answers else None
    except SpecialTokenInText:
        raise
    except Unproved:
        return None
