import pydoc_data.topics
import string
import sys

import pytest

from understudy.data.raw import Broken
from understudy.data.sources import python_docs
from understudy.errors import InputError

DOCS = python_docs.PythonDocsSource(type="python-docs")


@pytest.fixture(scope="module")
def records():
    return list(python_docs.read(DOCS, {}).records)


@pytest.fixture(scope="module")
def documents(records):
    return {raw.name: raw.content for raw in records}


def test_there_are_hundreds_of_documents_and_a_megabyte_of_text(documents):
    assert len(documents) > 300
    assert sum(map(len, documents.values())) > 1_000_000


def test_every_source_could_be_parsed(records):
    assert not [record for record in records if isinstance(record, Broken)]


def test_topics_are_those_of_pydoc(documents):
    for topic, text in pydoc_data.topics.topics.items():
        assert documents[f"pydoc_data/topics.py#{topic}"].decode() == text


def test_a_module_is_its_docstrings_in_source_order(documents):
    text = documents["string.py"].decode()
    starts = (string.__doc__.strip()[:30], "A string class for", "capwords(s")
    module, template, capwords = map(text.find, starts)
    assert module == 0
    assert -1 not in (template, capwords)


EVERYWHERE = '''
"""one"""
if x:
    def f():
        """two"""
        async def g():
            """three"""
else:
    class C:
        """four"""
try:
    pass
except E:
    def h():
        """five"""
match x:
    case 1:
        def i():
            """six"""
def j():
    "seven"
    "not a docstring"
'''


def test_docstrings_are_found_wherever_a_statement_can_stand(tmp_path, monkeypatch):
    (tmp_path / "m.py").write_text(EVERYWHERE)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "bad.py").write_text("not python")
    monkeypatch.setattr(python_docs.sysconfig, "get_path", lambda name: str(tmp_path))
    (document,) = python_docs.read(DOCS, {}).records
    assert document.content == b"one\n\ntwo\n\nthree\n\nfour\n\nfive\n\nsix\n\nseven"


def test_nothing_is_imported(documents):
    before = set(sys.modules)
    assert len(list(python_docs.read(DOCS, {}).records)) == len(documents)
    assert set(sys.modules) == before


def test_what_is_no_python_is_reported_not_swallowed(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("def :")
    (tmp_path / "b.py").write_bytes(b"x = 1\0")
    monkeypatch.setattr(python_docs.sysconfig, "get_path", lambda name: str(tmp_path))
    documents = list(python_docs.read(DOCS, {}).records)
    assert [record.name for record in documents] == ["a.py", "b.py"]
    assert all(isinstance(record, Broken) and "cannot be parsed" in record.reason for record in documents)


def test_an_interpreter_without_sources_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(python_docs.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(InputError, match="there are no sources of the standard library"):
        python_docs.read(DOCS, {})


def test_the_digest_notices_any_change(tmp_path, monkeypatch, fingerprints):
    (tmp_path / "a.py").write_text('"""a"""')
    monkeypatch.setattr(python_docs.sysconfig, "get_path", lambda name: str(tmp_path))
    before = python_docs.digest(DOCS, fingerprints)
    (tmp_path / "a.py").write_text('"""b"""')
    assert python_docs.digest(DOCS, fingerprints) != before
