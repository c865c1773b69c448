"""The documentation that ships with the Python interpreter, read with ast and never imported.

A document per topic of pydoc (the language reference), and one per module of the standard library: its docstrings in
the order of the source. Tests, idlelib and installed packages are left out.
"""

import ast
import os
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from understudy.data.raw import Broken, Raw, Reading
from understudy.data.sources.source import DataSource
from understudy.errors import InputError
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints, canonical, sha256

EXCLUDED = frozenset({"test", "tests", "idlelib", "site-packages", "dist-packages", "__pycache__"})
TOPICS = "pydoc_data/topics.py"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


class PythonDocsSource(SourceSection):
    """The documentation that ships with the Python interpreter: pydoc's topics and the docstrings."""

    type: Literal["python-docs"]


def read(_section: PythonDocsSource, _fields: Mapping[str, Kind]) -> Reading:
    """The documents, sorted by the file they come from."""
    sources = library_files()
    return Reading(len(sources), _documents(sources))


def digest(_section: PythonDocsSource, _fingerprints: Fingerprints) -> str:
    """One SHA-256 over the names and contents of the files that are read."""
    return sha256(canonical([[name, sha256(path.read_bytes())] for name, path in library_files().items()]))


def library_files() -> dict[str, Path]:
    """The sources of the standard library, by their names in it.

    Raises:
        InputError: this Python has none.
    """
    root = Path(sysconfig.get_path("stdlib"))
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in EXCLUDED]
        paths += [Path(folder, name) for name in names if name.endswith(".py")]
    if not paths:
        raise InputError(
            f"data.source.type: there are no sources of the standard library in {root}. "
            "Use a Python that was installed with them."
        )
    return {path.relative_to(root).as_posix(): path for path in sorted(paths)}


def _documents(sources: dict[str, Path]) -> Iterator[Raw | Broken]:
    for name, path in sources.items():
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError) as error:
            yield Broken(name, f"cannot be parsed ({error})")
            continue
        if name == TOPICS:
            yield from _topics(tree)
        elif text := "\n\n".join(_docstrings(tree)):
            yield Raw(name, text.encode())


def _topics(tree: ast.Module) -> Iterator[Raw]:
    assignment = next(node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
    assert assignment.value is not None
    for topic, text in ast.literal_eval(assignment.value).items():
        yield Raw(f"{TOPICS}#{topic}", text.encode())


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Docstrings in source order; only statements are walked, because expressions have none."""
    if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
        yield text
    for block in BLOCKS:
        for child in getattr(node, block, ()):
            yield from _docstrings(child)


SOURCE = DataSource(PythonDocsSource, frozenset({"text"}), read, digest)
