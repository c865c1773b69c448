"""Conversations about the standard library."""

import ast
import inspect
import json
from pathlib import Path

import pytest

from understudy.data.conversations import check_conversation, messages
from understudy.data.raw import Broken, Checked, Raw
from understudy.data.sources import python_docs, python_questions

QUESTIONS = python_questions.PythonQuestionsSource(type="python-questions")


@pytest.fixture(scope="module")
def conversations() -> dict[str, Raw]:
    records = list(python_questions.read(QUESTIONS, {}).records)
    return {record.name: record for record in records if isinstance(record, Raw)}


def test_there_are_thousands_of_valid_conversations(conversations: dict[str, Raw]) -> None:
    assert len(conversations) > 5000
    assert all(isinstance(check_conversation(record), Checked) for record in conversations.values())


def test_a_function_has_its_purpose_and_its_signature(conversations: dict[str, Raw]) -> None:
    turns = messages(conversations["json/__init__.py#json.dumps"].content)
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 2
    assert turns[0]["content"] == "What does json.dumps() do?"
    assert turns[1]["content"] == " ".join((inspect.getdoc(json.dumps) or "").partition("\n\n")[0].split())
    assert turns[3]["content"].startswith("dumps(obj, *, skipkeys=False")


def test_a_module_and_a_class_have_one_question(conversations: dict[str, Raw]) -> None:
    module, cls = (conversations[name].content for name in ("json/__init__.py#json", "ast.py#ast.NodeVisitor"))
    assert [turn["content"] for turn in messages(module)[::2]] == ["What is the module json for?"]
    assert [turn["content"] for turn in messages(cls)[::2]] == ["What is the class ast.NodeVisitor?"]
    assert len(messages(cls)) == 2


def test_functions_inside_of_functions_and_long_answers_are_left_out() -> None:
    source = 'def f():\n    """a"""\n    def g():\n        """b"""\n' + f'def h():\n    """{"c" * 401}"""\n'
    tree = ast.parse(source)
    assert [name for name, _ in python_questions._conversations(tree, "m")] == ["m.f"]


def test_a_source_that_cannot_be_parsed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def")
    monkeypatch.setattr(python_questions, "library_files", lambda: {"bad.py": tmp_path / "bad.py"})
    (record,) = python_questions.read(QUESTIONS, {}).records
    assert isinstance(record, Broken)
    assert record.name == "bad.py"


def test_its_digest_is_that_of_the_files_which_it_reads(conversations: dict[str, Raw]) -> None:
    del conversations
    from understudy.store.files import Fingerprints

    fingerprints = Fingerprints.__new__(Fingerprints)
    docs = python_docs.PythonDocsSource(type="python-docs")
    assert python_questions.digest(QUESTIONS, fingerprints) == python_docs.digest(docs, fingerprints)
