"""Conversations as tokens, and which of them are learned from, proved for each conversation.

A student is asked with the prompt that the template makes of the turns before an answer, and has to continue with the
answer and the token that ends it. So an answer's tokens are learned from only if the whole conversation's text and its
tokens begin with that prompt, and continue with the assistant's words up to that token. Nothing is searched for by a
marker or guessed from a template's name. Without a proof there is an error.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from understudy.data.chat_template import ChatTemplate, Message
from understudy.data.chat_turn import (
    CrossesBoundary,
    Rendered,
    SpecialTokenInText,
    Turn,
    Unproved,
    marked_turn,
    prompted_turn,
    quoted,
)

__all__ = ["Conversation", "CrossesBoundary", "SpecialTokenInText", "Unproved", "chat_tokenizer", "cut", "encode"]

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


def encode(
    template: ChatTemplate, tokenizer: Any, messages: Sequence[Message], loss_on: LossOn, train_on_eos: bool
) -> Conversation:
    """Encode a conversation as transformers' apply_chat_template(tokenize=True), and prove which tokens to learn from.

    White space around an answer that the template adds or removes is the template's: a student that is asked with the
    prompt has to write it. So is the frame of an empty thinking block. It takes one encoding, and one more of the
    prompt for each answer that is learned from.

    Args:
        template: the chat template.
        tokenizer: from chat_tokenizer().
        messages: the turns; those of the assistant have a text as their content.
        loss_on: which tokens are learned from.
        train_on_eos: whether the token that ends an answer is learned from, too; `all` includes it anyway.

    Raises:
        SpecialTokenInText: a message has a special token's text, which would end its turn. Leave the conversation out.
        CrossesBoundary: one token has the end of a prompt and the beginning of the answer. Leave it out.
        Unproved: the answers are not in the text as the assistant gave them, for a reason that the message gives.
        TemplateRefuses: the template refuses the conversation.
        InputError: the template is damaged, or nothing ends an answer.
    """
    assert not tokenizer.encode_special_tokens
    rendered = _rendered(template, tokenizer, messages, needs_end=loss_on != "all")
    answers = [index for index, message in enumerate(messages) if message.get("role") == "assistant"]
    if loss_on == "all":
        learned, last = [False, *[True] * (len(rendered.ids) - 1)], _last(rendered, answers)
        answer, end = ((last.start, last.stop), last.end) if last else ((0, 0), None)
        return Conversation(rendered.ids, learned[: len(rendered.ids)], end, answer)
    if not answers:
        raise Unproved("the conversation has no answer of the assistant, so nothing to learn from. Leave it out.")
    turns = [_turn(rendered, index) for index in (answers[-1:] if loss_on == "last" else answers)]
    learned = _mask(rendered, turns, train_on_eos)
    return Conversation(rendered.ids, learned, turns[-1].end, (turns[-1].start, turns[-1].stop))


def cut(template: ChatTemplate, tokenizer: Any, messages: Sequence[Message], length: int) -> list[Message] | None:
    """The longest beginning of a conversation that ends with an answer and has at most `length` tokens.

    Args:
        template: the chat template.
        tokenizer: from chat_tokenizer().
        messages: the turns.
        length: in tokens.

    Returns:
        The turns, or None if not even the first answer fits.

    Raises:
        TemplateRefuses: the template refuses the conversation.
        InputError: the template is damaged.
    """
    for count in range(len(messages), 1, -1):
        if messages[count - 1].get("role") == "assistant":
            text = template.render(messages[:count], add_generation_prompt=False)
            if len(tokenizer.encode(text, add_special_tokens=False).ids) <= length:
                return list(messages[:count])
    return None


def _rendered(template: ChatTemplate, tokenizer: Any, messages: Sequence[Message], *, needs_end: bool) -> Rendered:
    if not messages:
        raise Unproved("the conversation has no messages. Leave it out.")
    spans = None
    if template.has_marks:
        text, spans = template.marked(messages)
    else:
        text = template.render(messages, add_generation_prompt=False)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    rendered = Rendered(template, tokenizer, messages, text, ids, spans, needs_end=needs_end)
    rendered.check_texts(rendered.special_texts())
    return rendered


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
        rendered.check_texts({rendered.tokenizer.id_to_token(turn.end)})
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
