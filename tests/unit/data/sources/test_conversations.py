"""Every format of a conversation, read from JSON lines and from Parquet."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.data.sources.reading import section
from understudy.data.conversations import Turn, canonical
from understudy.data.raw import Broken, Raw
from understudy.data.sources.registry import read
from understudy.errors import InputError
from understudy.recipe.tasks import Kind

CHAT: dict[str, Kind] = {"messages": "messages"}
SOURCES = ["jsonl", "parquet"]
USER, ASSISTANT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
ONE_TURN = canonical([USER, ASSISTANT])


def records(
    folder: Path, rows: list[Any], source: str = "jsonl", fields: Mapping[str, Kind] = CHAT, **values: Any
) -> list[Raw | Broken]:
    path = folder / f"a.{source}"
    if source == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return list(read(section(type=source, path=str(path), **values), fields).records)


def contents(folder: Path, rows: list[Any], source: str = "jsonl", **values: Any) -> list[bytes]:
    raws = records(folder, rows, source, **values)
    assert all(isinstance(raw, Raw) for raw in raws), raws
    return [raw.content for raw in raws if isinstance(raw, Raw)]


def reason(folder: Path, row: Any, **values: Any) -> str:
    (broken,) = records(folder, [row], **values)
    assert isinstance(broken, Broken)
    assert broken.name == "a.jsonl:1"
    return broken.reason


SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt"}


def written(turns: list[Turn]) -> dict[str, Any]:
    """A row of each format that can have these turns; alpaca and plain prompts have one question."""
    rows: dict[str, Any] = {
        "messages": {"messages": turns},
        "sharegpt": {"conversations": [{"from": SPEAKERS[turn["role"]], "value": turn["content"]} for turn in turns]},
        "prompt-completion": {"prompt": turns[:-1], "completion": turns[-1:]},
    }
    *before, question, answer = (turn["content"] for turn in turns)
    if not before or (len(before) == 1 and turns[0]["role"] == "system"):
        system = {"system": before[0]} if before else {}
        rows["alpaca"] = {"instruction": question, "input": "", "output": answer, **system}
    if not before:
        rows["prompt-completion"] = {"prompt": question, "completion": answer}
    return rows


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    roles = ["system"] * draw(st.booleans()) + ["user", "assistant"] * draw(st.integers(1, 3))
    return [{"role": role, "content": draw(TEXT)} for role in roles]


@settings(max_examples=40, deadline=None)
@given(conversations())
def test_all_formats_of_a_conversation_give_the_same_bytes(turns: list[Turn]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for form, row in written(turns).items():
            for source in SOURCES:
                assert contents(Path(folder), [row], source, format=form) == [canonical(turns)], (form, source)


@pytest.mark.parametrize("source", SOURCES)
def test_alpacas_input_follows_the_instruction_after_a_blank_line(tmp_path: Path, source: str) -> None:
    rows = [
        {"instruction": "q", "input": context, "output": "a", "system": None} for context in ("more\nlines", " ", None)
    ]
    asked = [json.loads(content)[0]["content"] for content in contents(tmp_path, rows, source, format="alpaca")]
    assert asked == ["q\n\nmore\nlines", "q", "q"]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("row", "values"),
    [
        ({"chat": [USER, ASSISTANT], "id": 1}, {"columns": {"messages": "chat"}}),
        (
            {"chat": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
            {"columns": {"messages": "chat"}, "format": "sharegpt"},
        ),
        (
            {"question": "q", "answer": "a"},
            {"columns": {"prompt": "question", "completion": "answer"}, "format": "prompt-completion"},
        ),
        ({"ask": "q", "output": "a"}, {"columns": {"instruction": "ask"}, "format": "alpaca"}),
    ],
)
def test_the_columns_of_a_conversation_may_have_other_names(
    tmp_path: Path, source: str, row: Any, values: dict[str, Any]
) -> None:
    assert contents(tmp_path, [row], source, **values) == [ONE_TURN]


@pytest.mark.parametrize("source", SOURCES)
def test_other_keys_of_a_turn_are_left_out(tmp_path: Path, source: str) -> None:
    turns = [{"name": "x", **USER, "weight": None}, {**ASSISTANT, "name": None, "weight": 1}]
    assert contents(tmp_path, [{"messages": turns}], source) == [ONE_TURN]


def test_parts_of_text_are_joined(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]
    row = {"messages": [{"role": "user", "content": parts}, ASSISTANT]}
    assert contents(tmp_path, [row]) == [canonical([{"role": "user", "content": "a b"}, ASSISTANT])]


def as_user(**turn: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", **turn}, ASSISTANT]}


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (as_user(content=None), "turn 1 has no content"),
        (as_user(), "turn 1 has no content"),
        (as_user(content=3), "turn 1 has a number as content"),
        (as_user(content={}), "turn 1 has an object as content"),
        (
            as_user(content=[{"type": "image_url", "image_url": {"url": "x"}}]),
            "turn 1 has an image (type 'image_url'): only parts of text are supported",
        ),
        (
            as_user(content=[{"type": "text", "text": "a"}, {"type": "input_audio"}]),
            "turn 1 has a part (type 'input_audio'): only parts of text are supported",
        ),
        (as_user(content=["a"]), "turn 1 has a part (type None): only parts of text are supported"),
        (as_user(content="a", weight=0), "turn 1 has the weight 0: weights of turns are not supported"),
        (
            {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]},
            "turn 2: tool calls are not supported",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": "", "function_call": {"name": "f"}}]},
            "turn 2: tool calls are not supported",
        ),
        ({"messages": [USER, {"role": "tool", "content": "a"}]}, "turn 2: tool calls are not supported"),
        ({"messages": [USER, "a"]}, "turn 2 is a string, not an object"),
        ({"messages": [USER, {"content": "a"}]}, "turn 2 has no role; its keys are content"),
        ({"messages": "a"}, "has a string for a conversation, not a list of turns"),
        ({"messages": None}, "has null for a conversation, not a list of turns"),
    ],
)
def test_turns_that_are_no_text_are_broken_with_the_number_of_the_turn(tmp_path: Path, row: Any, fault: str) -> None:
    assert reason(tmp_path, row) == fault


@pytest.mark.parametrize(
    ("form", "row", "fault"),
    [
        (
            "sharegpt",
            {"conversations": [{"from": "bing", "value": "a"}]},
            "turn 1 is from 'bing': only system, ",
        ),
        (
            "sharegpt",
            {"conversations": [{"from": "observation", "value": "a"}]},
            "turn 1: tool calls are not supported",
        ),
        ("alpaca", {"instruction": "a", "output": None}, "its output is null, not a string"),
        ("alpaca", {"instruction": "a", "input": 3, "output": "a"}, "its input is a number, not a string"),
        ("prompt-completion", {"prompt": [USER], "completion": 1}, "its completion is a number, not a string"),
        ("prompt-completion", {"prompt": [USER], "completion": [3]}, "turn 2 is a number, not an object"),
    ],
)
def test_faults_of_other_formats_are_named(tmp_path: Path, form: str, row: Any, fault: str) -> None:
    assert reason(tmp_path, row, format=form).startswith(fault)


def test_a_row_without_a_column_is_broken(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "completion": "a"}, {"prompt": "q"}]
    assert records(tmp_path, rows, format="prompt-completion") == [
        Raw("a.jsonl:1", ONE_TURN),
        Broken("a.jsonl:2", "has no column completion"),
    ]


SHAREGPT = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("row", "form", "fault"),
    [
        ({"instruction": "q", "output": "a"}, "messages", r"its columns are instruction, output: .*format: alpaca$"),
        ({"prompt": "q", "completion": "a"}, "alpaca", "give data.source.format: prompt-completion$"),
        (SHAREGPT, "messages", "has no column messages; its columns are conversations: give .*format: sharegpt$"),
        ({"messages": [USER, ASSISTANT]}, "sharegpt", "give data.source.format: messages$"),
        ({"text": "a"}, "messages", r"data\.source\.columns\.messages: .* has no column messages\. It has text"),
        ({"instruction": "a"}, "alpaca", r"data\.source\.columns\.output: .* has no column output\. It has"),
        (
            {"conversations": [USER, ASSISTANT]},
            "sharegpt",
            "have the keys role, content, as .*format: messages, with data.source.columns.messages: conversations$",
        ),
        (
            {"messages": SHAREGPT["conversations"], "conversations": SHAREGPT["conversations"]},
            "messages",
            "have the keys from, value, as .*format: sharegpt, with data.source.columns.messages: messages$",
        ),
    ],
)  # fmt: skip
def test_columns_of_another_format_are_refused_with_its_name(
    tmp_path: Path, source: str, row: Any, form: str, fault: str
) -> None:
    with pytest.raises(InputError, match=fault):
        records(tmp_path, [row], source, format=form)


@pytest.mark.parametrize("source", SOURCES)
def test_a_format_is_refused_where_records_are_no_conversations(tmp_path: Path, source: str) -> None:
    with pytest.raises(InputError, match=r"data\.source\.format: the task's records are no conversations"):
        records(tmp_path, [{"text": "a"}], source, {"text": "text"}, format="alpaca")


@pytest.mark.parametrize(
    ("rows", "form", "fault"),
    [
        ([{"messages": "a"}], "messages", r"column messages is string\. Name a column of lists of \{role, content\}"),
        (
            [{"prompt": 1, "completion": "a"}],
            "prompt-completion",
            "column prompt is int64. Name a column of strings, ",
        ),
        (
            [{"instruction": "a", "output": "a", "input": 1}],
            "alpaca",
            "column input is int64. Name a column of str",
        ),
    ],
)
def test_a_column_of_another_type_is_refused(tmp_path: Path, rows: list[Any], form: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        records(tmp_path, rows, "parquet", format=form)


def test_a_conversation_may_have_a_split_and_files_of_other_columns(tmp_path: Path) -> None:
    rows = [{"instruction": "q", "output": "a", "part": "dev"}]
    for name, more in (("a", {"input": ""}), ("b", {})):
        pq.write_table(pa.Table.from_pylist([row | more for row in rows]), tmp_path / f"{name}.parquet")
    source = section(type="parquet", path=str(tmp_path), format="alpaca", split="part")
    assert [*read(source, CHAT).records] == [
        Raw(f"{name}.parquet#0", ONE_TURN, None, "validation") for name in ("a", "b")
    ]
