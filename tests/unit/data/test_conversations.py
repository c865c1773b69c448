import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.conversations import Turn, canonical, check_conversation, messages
from understudy.data.raw import EMPTY, Broken, Checked, Raw


def turns(*pairs: tuple[str, str]) -> list[Turn]:
    return [{"role": role, "content": content} for role, content in pairs]


def of_roles(roles: str) -> list[Turn]:
    """A turn for each letter: s, u or a."""
    names = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return turns(*((names[letter], f"turn {number}") for number, letter in enumerate(roles)))


def check(conversation: list[Turn]) -> Checked | Broken:
    return check_conversation(Raw("a.jsonl:1", canonical(conversation)))


def key(conversation: list[Turn]) -> str:
    checked = check(conversation)
    assert isinstance(checked, Checked)
    return checked.key


CONTENT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), CONTENT)))
def test_canonical_bytes_are_compact_json_that_gives_the_turns_again(pairs: list[tuple[str, str]]) -> None:
    written = turns(*pairs)
    assert messages(canonical(written)) == written
    assert canonical(written).decode() == json.dumps(written, ensure_ascii=False, separators=(",", ":"))


def test_the_keys_of_a_turn_have_an_order() -> None:
    assert canonical(turns(("user", "caf\u00e9"))) == '[{"role":"user","content":"caf\u00e9"}]'.encode()


@pytest.mark.parametrize("roles", ["ua", "sua", "uaua", "suauaua"])
def test_user_and_assistant_alternate_after_a_system_prompt_or_none(roles: str) -> None:
    conversation = of_roles(roles)
    checked = check(conversation)
    assert isinstance(checked, Checked)
    assert messages(checked.record.content) == conversation


@pytest.mark.parametrize(
    ("roles", "reason"),
    [
        ("", EMPTY),
        ("s", "has no assistant's turn: nothing to learn"),
        ("u", "has no assistant's turn: nothing to learn"),
        ("su", "has no assistant's turn: nothing to learn"),
        ("uau", "ends with a user's turn, turn 3: nothing to learn"),
        ("au", "turn 1 is the assistant's: the first turn after the system prompt has to be a user's"),
        ("sa", "turn 2 is the assistant's: the first turn after the system prompt has to be a user's"),
        ("suua", "turns 2 and 3 are both of the user: user and assistant have to alternate"),
        ("uaa", "turns 2 and 3 are both of the assistant: user and assistant have to alternate"),
        ("usa", "turn 2 is a system prompt, which may only be the first turn, and once"),
        ("ssua", "turn 2 is a system prompt, which may only be the first turn, and once"),
        ("uta", "turn 2 has the role 'tool': only system, user and assistant are supported"),
    ],
)
def test_another_order_is_broken_with_the_number_of_the_turn(roles: str, reason: str) -> None:
    assert check(of_roles(roles)) == Broken("a.jsonl:1", reason)


@pytest.mark.parametrize("content", ["", " \t\r\n", "\u00a0\u3000", "\ufeff "])
def test_a_turn_without_content_is_broken(content: str) -> None:
    assert check(turns(("user", content), ("assistant", "a"))) == Broken("a.jsonl:1", "turn 1 (user) is empty")
    assert check(turns(("user", "a"), ("assistant", content))) == Broken("a.jsonl:1", "turn 2 (assistant) is empty")


def test_the_character_zero_is_no_text() -> None:
    broken = check(turns(("user", "a\0"), ("assistant", "a")))
    assert broken == Broken("a.jsonl:1", "turn 1 (user) has the character zero, which is no text")


def test_copies_that_differ_only_in_line_ends_and_byte_order_marks_have_one_key() -> None:
    plain = key(turns(("user", "a\nb"), ("assistant", "c\n\nd")))
    assert key(turns(("user", "a\r\nb"), ("assistant", "\ufeffc\r\rd"))) == plain
    assert key(turns(("user", "a b"), ("assistant", "c\n\nd"))) != plain
    assert key(turns(("user", "a\nb"), ("assistant", "c\n\nd"), ("user", "e"), ("assistant", "f"))) != plain


def test_the_content_stays_as_it_is() -> None:
    record = Raw("a", canonical(turns(("user", "a\r\n"), ("assistant", "b"))))
    checked = check_conversation(record)
    assert isinstance(checked, Checked)
    assert checked.record == record
