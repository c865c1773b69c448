"""Conversations about the standard library of the Python interpreter: a definition's purpose, and its signature.

An answer is the first paragraph of the docstring; the sources are read with ast and never imported.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from understudy.data.conversations import Turn, canonical
from understudy.data.raw import Broken, Raw, Reading
from understudy.data.sources import python_docs
from understudy.data.sources.python_docs import TOPICS, library_files
from understudy.data.sources.source import DataSource
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints

LONGEST = 400
"""Characters of an answer; definitions with longer ones are left out."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class PythonQuestionsSource(SourceSection):
    """Questions about the modules, classes and functions of Python's standard library, with their answers."""

    type: Literal["python-questions"]


def read(_section: PythonQuestionsSource, _fields: Mapping[str, Kind]) -> Reading:
    """A conversation for each documented definition, sorted by the file that it comes from."""
    records = list(_records(library_files()))
    return Reading(len(records), iter(records))


def digest(_section: PythonQuestionsSource, fingerprints: Fingerprints) -> str:
    """One SHA-256 over the names and contents of the files that are read."""
    return python_docs.digest(python_docs.PythonDocsSource(type="python-docs"), fingerprints)


def _records(sources: Mapping[str, Path]) -> Iterator[Raw | Broken]:
    for name, path in sources.items():
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError) as error:
            yield Broken(name, f"cannot be parsed ({error})")
            continue
        module = ".".join(Path(name).with_suffix("").parts).removesuffix(".__init__")
        if name != TOPICS:
            for definition, messages in _conversations(tree, module):
                yield Raw(f"{name}#{definition}", canonical(messages))


def _conversations(node: ast.Module | ast.ClassDef | Function, name: str) -> Iterator[tuple[str, list[Turn]]]:
    """A conversation for a definition, and for those in its body, with their dotted names."""
    paragraph = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
    if paragraph and len(paragraph) <= LONGEST:
        yield name, [*_turns(_question(node, name), paragraph), *_signature(node)]
    if isinstance(node, Function):
        return
    for child in node.body:
        if isinstance(child, ast.ClassDef | Function):
            yield from _conversations(child, f"{name}.{child.name}")


def _question(node: ast.Module | ast.ClassDef | Function, name: str) -> str:
    if isinstance(node, ast.Module):
        return f"What is the module {name} for?"
    return f"What is the class {name}?" if isinstance(node, ast.ClassDef) else f"What does {name}() do?"


def _signature(node: ast.Module | ast.ClassDef | Function) -> list[Turn]:
    if not isinstance(node, Function):
        return []
    signature = f"{node.name}({ast.unparse(node.args)})"
    return _turns("How is it called?", signature) if len(signature) <= LONGEST else []


def _turns(question: str, answer: str) -> list[Turn]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


SOURCE = DataSource(PythonQuestionsSource, frozenset({"messages"}), read, digest)
