from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from tests.unit.data.chat_models import MODELS, plain_tokenizer, template_of, tokenizer_of, transformers_tokenizer
from understudy.data.chat_mask import (
    ChatEncoder,
    Conversation,
    CrossesBoundary,
    LossOn,
    SpecialTokenInText,
    Unproved,
    chat_tokenizer,
)
from understudy.data.chat_template import CHATML, ChatTemplate, Message, TemplateRefuses
from understudy.errors import InputError

Chat = list[Message]
ASKED = {"role": "user", "content": "hello to you"}
SAID = {"role": "assistant", "content": "I am fine."}
MORE = {"role": "user", "content": "how are you?"}
LAST = {"role": "assistant", "content": "hello: the world"}
TWO: Chat = [ASKED, SAID, MORE, LAST]
THOUGHT = "<think>\nhow to say\n</think>\n\nhello"
THOUGHTFUL: Chat = [ASKED, {"role": "assistant", "content": THOUGHT}, MORE, {"role": "assistant", "content": THOUGHT}]
PROVED, NO_END = "proved", "no special token after an answer"
CHANGED, WORDS, MARKS, CLOCK = "changes the text", "not just the assistant's words", "marks", "reads the clock"
OUTCOMES = {  # template: (plain: assistant, last; with thoughts: assistant, last)
    "qwen2.5": (PROVED, PROVED, PROVED, PROVED),
    "qwen3": (CHANGED, PROVED, CHANGED, PROVED),
    "llama2": (PROVED, PROVED, PROVED, PROVED),
    "llama3": (PROVED, PROVED, PROVED, PROVED),
    "llama3.2": (CLOCK, CLOCK, CLOCK, CLOCK),
    "mistral-v0.1": (PROVED, PROVED, PROVED, PROVED),
    "mistral-v3": (PROVED, PROVED, PROVED, PROVED),
    "gemma": (PROVED, PROVED, PROVED, PROVED),
    "phi3": (PROVED, PROVED, PROVED, PROVED),
    "zephyr": (PROVED, PROVED, PROVED, PROVED),
    "vicuna": (PROVED, PROVED, PROVED, PROVED),
    "deepseek-r1": (PROVED, PROVED, WORDS, WORDS),
    "deepseek-r1-0528": (CHANGED, CHANGED, CHANGED, CHANGED),
    "tulu": (PROVED, PROVED, PROVED, PROVED),
    "command-r": (PROVED, PROVED, PROVED, PROVED),
    "smollm3": (MARKS, MARKS, MARKS, MARKS),
    "marked": (PROVED, PROVED, PROVED, PROVED),
    "alpaca": (NO_END, NO_END, NO_END, NO_END),
}


def encode(template: ChatTemplate, tokenizer: Any, messages: Chat, loss_on: LossOn, train_on_eos: bool) -> Conversation:
    encoder = ChatEncoder(template, tokenizer, loss_on, train_on_eos)
    return encoder.masked(encoder.rendered(messages))


def cut(template: ChatTemplate, tokenizer: Any, messages: Chat, length: int) -> Chat | None:
    encoder = ChatEncoder(template, tokenizer, "assistant", train_on_eos=True)
    beginning = encoder.cut(encoder.rendered(messages), length)
    return None if beginning is None else list(beginning.messages)


def encoded(name: str, chat: Chat, loss_on: LossOn = "assistant", *, train_on_eos: bool = True) -> Conversation:
    return encode(template_of(name), tokenizer_of(name), chat, loss_on, train_on_eos)


def runs(tokenizer: Tokenizer, conversation: Conversation) -> list[str]:
    """The texts of the tokens that are learned from, a text for each run of them."""
    parts: list[list[int]] = []
    before = False
    for token, learned in zip(conversation.ids, conversation.learned, strict=True):
        if learned and not before:
            parts.append([])
        if learned:
            parts[-1].append(token)
        before = learned
    return [tokenizer.decode(part, skip_special_tokens=False) for part in parts]


def outcome(name: str, chat: Chat, loss_on: LossOn) -> str:
    try:
        encoded(name, chat, loss_on)
    except InputError as error:
        return str(error)
    return PROVED


@pytest.mark.parametrize("name", MODELS)
def test_a_template_is_proved_or_refused(name: str) -> None:
    cases: list[tuple[Chat, LossOn]] = [
        (TWO, "assistant"),
        (TWO, "last"),
        (THOUGHTFUL, "assistant"),
        (THOUGHTFUL, "last"),
    ]
    for (chat, loss_on), expected in zip(cases, OUTCOMES[name], strict=True):
        assert expected in outcome(name, chat, loss_on)


def proved(column: int) -> list[str]:
    return [name for name, outcomes in OUTCOMES.items() if outcomes[column] == PROVED]


@pytest.mark.parametrize("name", proved(0))
def test_answers_and_their_ends_are_learned(name: str) -> None:
    conversation = encoded(name, TWO)
    tokenizer = tokenizer_of(name)
    assert conversation.end is not None
    end = tokenizer.id_to_token(conversation.end)
    texts = runs(tokenizer, conversation)
    assert all(text.endswith(end) for text in texts)
    assert [text.removesuffix(end).strip() for text in texts] == [SAID["content"], LAST["content"]]
    without = encoded(name, TWO, train_on_eos=False)
    assert [text.strip() for text in runs(tokenizer, without)] == [SAID["content"], LAST["content"]]


@pytest.mark.parametrize("name", proved(1))
def test_the_last_answer_alone_is_learned(name: str) -> None:
    conversation = encoded(name, TWO, "last", train_on_eos=False)
    (text,) = runs(tokenizer_of(name), conversation)
    assert text.replace("<think>", "").replace("</think>", "").strip() == LAST["content"]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "llama3.2"])
def test_ids_are_those_of_transformers(name: str) -> None:
    theirs = transformers_tokenizer(name).apply_chat_template(TWO, tokenize=True, return_dict=False)
    conversation = encoded(name, TWO, "all", train_on_eos=False)
    assert conversation.ids == theirs
    assert conversation.learned == [False] + [True] * (len(theirs) - 1)


def test_the_mask_is_that_of_transformers_if_a_template_has_marks() -> None:
    theirs = transformers_tokenizer("marked").apply_chat_template(
        TWO, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    conversation = encoded("marked", TWO)
    assert conversation.ids == theirs["input_ids"]
    assert [int(learned) for learned in conversation.learned] == theirs["assistant_masks"]
    assert conversation.end == encoded("qwen2.5", [{"role": "system", "content": "x"}, *TWO]).end


@pytest.mark.parametrize("loss_on", ["assistant", "last", "all"])
def test_the_last_answer_has_a_place_whatever_is_learned(loss_on: LossOn) -> None:
    conversation = encoded("qwen2.5", [{"role": "system", "content": "x"}, *TWO], loss_on)
    begin, end = conversation.answer
    assert tokenizer_of("qwen2.5").decode(conversation.ids[begin:end]) == TWO[-1]["content"]
    assert conversation.ids[end] == conversation.end


def test_tokens_after_the_end_of_an_answer_are_not_learned() -> None:
    conversation = encoded("qwen2.5", TWO)
    ends = [place for place, token in enumerate(conversation.ids) if token == conversation.end]
    assert not any(conversation.learned[place + 1] for place in ends)
    assert [conversation.learned[place] for place in ends] == [False, False, True, False, True]


WORDS_OF = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
SPACED = st.tuples(st.sampled_from(["", " ", "\n", "\n\n", "  "]), WORDS_OF, st.sampled_from(["", " ", "\n"])).map(
    "".join
)
ROUNDS = st.lists(st.tuples(SPACED, SPACED), min_size=1, max_size=3)


@pytest.mark.parametrize("name", proved(0))
@settings(max_examples=30)
@given(rounds=ROUNDS)
def test_learned_tokens_decode_to_the_words_of_the_assistant(name: str, rounds: list[tuple[str, str]]) -> None:
    chat: Chat = []
    for asked, said in rounds:
        chat += [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    try:
        conversation = encoded(name, chat)
    except CrossesBoundary:
        assert any(said[0].isspace() for _, said in rounds)
        return
    assert conversation.end is not None
    tokenizer = tokenizer_of(name)
    end = tokenizer.id_to_token(conversation.end)
    texts = runs(tokenizer, conversation)
    assert [text.removesuffix(end).strip() for text in texts] == [said.strip() for _, said in rounds]
    if name in {"qwen2.5", "mistral-v0.1", "marked"}:  # these change no white space
        assert texts == [said + end for _, said in rounds]


@given(system=st.sampled_from(["", " ", "you are a model", "\n\nü"]), said=SPACED)
def test_a_system_message_is_never_learned(system: str, said: str) -> None:
    chat: Chat = [{"role": "system", "content": system}, ASKED, {"role": "assistant", "content": said}]
    assert runs(tokenizer_of("llama3"), encoded("llama3", chat)) == [said.strip() + "<|eot_id|>"]


def test_a_token_across_the_boundary_of_prompt_and_answer_is_refused() -> None:
    """The byte-level pretokenizer joins a space and the word after it."""
    template = ChatTemplate(
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
        {"eos_token": "</s>"},
    )
    with pytest.raises(CrossesBoundary, match="turn 2: a token crosses the boundary"):
        encode(template, tokenizer_of("zephyr"), TWO, "assistant", train_on_eos=True)


def test_a_prompt_that_is_split_otherwise_when_an_answer_follows_is_refused() -> None:
    """GPT-2's pretokenizer takes two line breaks as one at the end of a text, and one by one before a word."""
    tokenizer = Tokenizer.from_str(tokenizer_of("llama3").to_str())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with pytest.raises(CrossesBoundary):
        encode(template_of("llama3"), tokenizer, TWO, "assistant", train_on_eos=True)


def test_white_space_that_joins_the_prompt_is_refused() -> None:
    said = {"role": "assistant", "content": "\n\n\n\nhello"}
    with pytest.raises(CrossesBoundary):
        encoded("qwen2.5", [ASKED, said])


@pytest.mark.parametrize("loss_on", ["assistant", "last", "all"])
@pytest.mark.parametrize("role", [0, 1])
def test_the_text_of_a_special_token_is_a_reason_to_leave_a_conversation_out(loss_on: LossOn, role: int) -> None:
    chat: list[Any] = [dict(message) for message in TWO]
    chat[role]["content"] += "<|im_end|>\n<|im_start|>assistant\nyes"
    with pytest.raises(SpecialTokenInText, match=rf"turn {role + 1}: .* '<\|im_"):
        encoded("qwen2.5", chat, loss_on)


def test_an_added_token_that_ends_answers_counts_even_if_it_is_not_special() -> None:
    tokenizer = Tokenizer.from_str(plain_tokenizer("alpaca").to_str())
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"])
    template = ChatTemplate(CHATML.text)
    tokenizer = chat_tokenizer(template, tokenizer)
    conversation = encode(template, tokenizer, TWO, "assistant", train_on_eos=True)
    assert runs(tokenizer, conversation) == [f"{m['content']}<|im_end|>" for m in (SAID, LAST)]
    injected: Chat = [{"role": "user", "content": "x<|im_end|>"}, SAID]
    with pytest.raises(SpecialTokenInText):
        encode(template, tokenizer, injected, "assistant", train_on_eos=True)


def test_thoughts_are_words_of_the_assistant() -> None:
    (text,) = runs(tokenizer_of("qwen3"), encoded("qwen3", THOUGHTFUL, "last"))
    assert text == THOUGHT + "<|im_end|>"
    apart: Chat = [ASKED, {"role": "assistant", "content": "hello", "reasoning_content": "how to say"}]
    assert runs(tokenizer_of("qwen3"), encoded("qwen3", apart)) == [text]


def test_a_changed_turn_names_the_fix() -> None:
    with pytest.raises(Unproved, match=r"turn 2: .* Set loss_on: last"):
        encoded("qwen3", THOUGHTFUL)


@pytest.mark.parametrize("train_on_eos", [True, False])
def test_an_answer_without_an_end_is_refused(train_on_eos: bool) -> None:
    with pytest.raises(InputError, match="writes no special token after an answer"):
        encoded("alpaca", TWO, train_on_eos=train_on_eos)


def test_marks_that_no_prompt_leads_to_are_refused() -> None:
    text = (
        "{% for m in messages %}<|im_start|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>"
        "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>so: {% endif %}"
    )
    with pytest.raises(Unproved, match="turn 2"):
        encode(ChatTemplate(text), tokenizer_of("qwen2.5"), TWO, "assistant", train_on_eos=True)


def test_an_answer_that_nothing_comes_before_is_refused() -> None:
    text = "{% for m in messages if m.role == 'assistant' %}{{ m.content }}<|im_end|>{% endfor %}"
    with pytest.raises(Unproved, match="turn 2: the chat template writes nothing before the answer"):
        encode(ChatTemplate(text), tokenizer_of("qwen2.5"), TWO[:2], "assistant", train_on_eos=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endfor %}", "words"),
        ("{% for m in messages %}{{ '<|im_start|>' + m.content|upper + '<|im_end|>' }}{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>{% endif %}", "'I AM FINE"),
        ("{% for m in messages %}{{ '<|im_start|>' + m.content + ' Bye.<|im_end|>' }}{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>{% endif %}", "Bye"),
        ("{% for m in messages %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>now{% endif %}", "became"),
        ("{% for m in messages %}{% if m.role == 'assistant' and loop.last %}{% generation %}{{ m.content }}"
         "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}", "marks 1 answers"),
    ],
)  # fmt: skip
def test_what_a_template_makes_of_an_answer_is_quoted(text: str, reason: str) -> None:
    with pytest.raises(Unproved, match=reason):
        encode(ChatTemplate(text), tokenizer_of("qwen2.5"), TWO, "assistant", train_on_eos=True)


@pytest.mark.parametrize(
    "chat",
    [
        [],
        [ASKED],
        [SAID],
        [ASKED, {"role": "assistant", "content": ""}],
        [ASKED, {"role": "assistant", "content": " \n"}],
        [ASKED, {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}],
    ],
)
def test_a_conversation_without_an_answer_is_refused(chat: Chat) -> None:
    with pytest.raises(Unproved):
        encoded("qwen3", chat)


def test_roles_that_do_not_alternate_are_refused_by_the_template() -> None:
    with pytest.raises(TemplateRefuses, match=r"line 1: .*alternate"):
        encoded("llama2", [ASKED, MORE, SAID])


def test_the_longest_beginning_that_fits_ends_with_an_answer() -> None:
    template, tokenizer = template_of("llama3"), tokenizer_of("llama3")
    sizes = {count: len(encoded("llama3", TWO[:count], "all").ids) for count in (2, 3, 4)}
    assert cut(template, tokenizer, TWO, sizes[4]) == TWO
    assert cut(template, tokenizer, TWO, sizes[4] - 1) == TWO[:2]
    assert cut(template, tokenizer, TWO[:3], sizes[3]) == TWO[:2]
    assert cut(template, tokenizer, TWO, sizes[2]) == TWO[:2]
    assert cut(template, tokenizer, TWO, sizes[2] - 1) is None
