import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.errors import InputError, UnderstudyError
from understudy.registry.audit import FIRST, digest_of, lines_of, sealed, verify

ENTRIES = st.lists(
    st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=3),
    min_size=2,
    max_size=8,
)


def chain(entries: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for number, entry in enumerate(entries, 1):
        lines.append(sealed({"entry": entry}, number, digest_of(lines[-1]) if lines else FIRST))
    return lines


@given(ENTRIES)
@example([{"name": "a\u2028b"}, {"name": "c\x85d"}])
def test_a_whole_audit_is_found_whole(entries: list[dict[str, Any]]) -> None:
    lines = chain(entries)
    assert "\n".join(lines).splitlines() == lines, "an exported audit is read line by line"
    assert verify(lines) == (len(lines), digest_of(lines[-1]))
    for line in lines:
        assert verify(lines, last=digest_of(line)).lines == len(lines)


@given(ENTRIES, st.data())
def test_a_removed_line_is_found(entries: list[dict[str, Any]], data: st.DataObject) -> None:
    lines = chain(entries)
    last = digest_of(lines[-1])
    del lines[data.draw(st.integers(0, len(lines) - 1))]
    with pytest.raises(UnderstudyError, match=r"removed"):
        verify(lines, last)


@given(ENTRIES, st.data())
def test_a_changed_line_is_found(entries: list[dict[str, Any]], data: st.DataObject) -> None:
    lines = chain(entries)
    number = data.draw(st.integers(0, len(lines) - 1))
    content = json.loads(lines[number])
    content[data.draw(st.sampled_from(sorted(content)))] = "another"
    lines[number] = json.dumps(content)
    with pytest.raises(UnderstudyError, match=rf"audit, line {number + 1}: "):
        verify(lines)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"who": "mallory"', '"who": "rita", "who": "mallory"'),
        ('"who": "mallory"', r'"who": "mallory", "\u0077ho": "mallory"'),
        ("mallory", r"m\u0061llory"),
        ('"who": ', '"who":'),
        ("{", " {"),
        ("}}", "}} "),
    ],
    ids=["a key twice", "a key twice, spelt otherwise", "escapes", "a blank less", "a blank before it", "a blank more"],
)
def test_a_line_with_the_same_content_in_other_letters_is_found(before: str, after: str) -> None:
    lines = chain([{"a": 1}, {"who": "mallory", "in": {}}, {"b": 2}])
    last = digest_of(lines[-1])
    changed = lines[1].replace(before, after, 1)
    assert changed != lines[1]
    assert digest_of(changed) == digest_of(lines[1])
    with pytest.raises(UnderstudyError, match=r"audit, line 2: it was changed"):
        verify([lines[0], changed, lines[2]], last)


@given(ENTRIES)
def test_lines_that_change_places_are_found(entries: list[dict[str, Any]]) -> None:
    lines = chain(entries)
    lines[0], lines[1] = lines[1], lines[0]
    with pytest.raises(UnderstudyError, match=r"audit, line 1: it is entry 2; entries were removed, added or moved"):
        verify(lines)


def test_a_chain_that_was_made_anew_is_found_by_a_digest_that_was_noted() -> None:
    noted = digest_of(chain([{"a": 1}, {"b": 2}])[-1])
    with pytest.raises(UnderstudyError, match=f"no line has the digest {noted}"):
        verify(chain([{"a": 1}, {"b": 3}]), noted)


def test_a_line_behind_another_one_than_it_followed_is_found() -> None:
    with pytest.raises(UnderstudyError, match=r"line 1: it followed another entry"):
        verify([sealed({"a": 1}, 1, "1" * 64)])


@pytest.mark.parametrize("line", ["", "no JSON", "[]", "{}", '{"digest": "a"}', "null", "[" * 100_000])
def test_an_invalid_entry_is_named(line: str) -> None:
    with pytest.raises(UnderstudyError, match=r"audit, line 2: this is no entry of an audit"):
        verify([*chain([{}]), line])


def test_an_empty_audit_is_whole() -> None:
    assert verify([]) == (0, FIRST)


def test_a_database_has_no_audit() -> None:
    with pytest.raises(InputError, match="only a server has"):
        list(lines_of("sqlite:///a.db"))
