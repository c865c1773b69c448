"""The files that a test file reaches: modules that it imports, directly or not, and data that these name.

Everything is read from the source with ast; nothing is imported. Imports inside functions count, and so do modules that
a string names (`"understudy.data.sources.digits"`, `["-m", "understudy.agent.worker"]`), paths (`ROOT / "manifests"`)
and files beside a module (`"report.html.j2"`). Where a name can mean more than one file, all of them count.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath

from understudy.imports import import_statements

ROOTS = {"understudy": "src/understudy", "understudy_server": "server/src/understudy_server"}
ROOTS |= {"tests": "tests", "benchmarks": "benchmarks"}
ROOTS |= {f"understudy.{name}": name for name in ("pipelines", "components", "recipes")}  # links in the package
MODULE = re.compile(r"(\w+(?:\.\w+)+)(?::[\w.]+)?")
PATH = re.compile(r"[\w.*{}@+-]+(?:/[\w.*{}@+-]+)*/?")
COMMAND = "src/understudy/__main__.py"
WHOLE = ("manifests/",)
"""Folders whose files name each other (kustomize): who names one of them reaches all."""


@dataclass(frozen=True)
class Tree:
    """A working tree: its files, relative to its root."""

    root: Path
    files: frozenset[str]

    @classmethod
    def of_git(cls, root: Path) -> "Tree":
        """Files that git tracks, or would track if they were added."""
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
        return cls(root, frozenset(name for name in listed.split("\0") if name and (root / name).is_file()))

    @cached_property
    def folders(self) -> frozenset[str]:
        """Every folder that holds a file, at any depth."""
        return frozenset(str(parent) for name in self.files for parent in PurePosixPath(name).parents) - {"."}

    @cached_property
    def modules(self) -> dict[str, str]:
        """The file of each Python module, by its dotted name."""
        return {
            _dotted(name, package, folder): name
            for package, folder in ROOTS.items()
            for name in self.files
            if name.endswith(".py") and (name.startswith(f"{folder}/"))
        }

    def below(self, folder: str) -> set[str]:
        """The files in a folder, at any depth."""
        return {name for name in self.files if name.startswith(f"{folder}/")}


def _dotted(name: str, package: str, folder: str) -> str:
    parts = PurePosixPath(name).relative_to(folder).with_suffix("").parts
    return ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))


class Reach:
    """Closures over a tree; each file is parsed once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._named: dict[str, set[str]] = {}

    def closure(self, test: str, without: tuple[str, ...] = ()) -> set[str]:
        """The files that a test file reaches, itself and the conftest.py of its folders among them.

        Args:
            test: the test file.
            without: prefixes of files at which to stop; what only these reach is not in the result.
        """
        conftests = (str(parent / "conftest.py") for parent in PurePosixPath(test).parents)
        todo, reached = [test, *(name for name in conftests if name in self.tree.files)], set[str]()
        while todo:
            name = todo.pop()
            if name not in reached and not name.startswith(without or ("\0",)):
                reached.add(name)
                todo += self.named(name)
        return reached

    def named(self, name: str) -> set[str]:
        """The files that a file names itself."""
        if name not in self._named:
            self._named[name] = self._read(name) if name.endswith(".py") else set()
        return self._named[name]

    def _read(self, name: str) -> set[str]:
        source = ast.parse((self.tree.root / name).read_bytes())
        names = set[str]()
        for statement in import_statements(source, _package(PurePosixPath(name))):
            for dotted in statement.candidates:
                names |= self._module(dotted)
        for text, is_path in _strings(source):
            names |= self._string(text, name, is_path)
        if _starts_command(source):
            names.add(COMMAND)
        return {name for reached in names for name in self._whole(reached)}

    def _module(self, dotted: str) -> set[str]:
        """A module's file, and those of the packages around it, whose __init__ runs first."""
        parts = dotted.split(".")
        names = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        return {self.tree.modules[name] for name in names if name in self.tree.modules}

    def _string(self, text: str, name: str, is_path: bool) -> set[str]:
        if (dotted := MODULE.fullmatch(text)) and dotted[1].split(".")[0] in ROOTS:
            return self._module(dotted[1])
        if not PATH.fullmatch(text) or not (is_path or "/" in text or "." in text):
            return set()
        folder = str(PurePosixPath(name).parent)
        if "src" in PurePosixPath(name).parts and not (is_path and text.split("/")[0] in ROOTS.values()):
            return self._beside(text, folder)
        literal = text.rstrip("/")
        return self._path(literal, folder) or self._path(literal.split("/*")[0].split("/{")[0], folder)

    def _path(self, text: str, folder: str) -> set[str]:
        """The file or the folder's files of that name, from the root or from the module's folder."""
        for path in (text, f"{folder}/{text}"):
            if path in self.tree.files:
                return {path}
            if path in self.tree.folders:
                return self.tree.below(path)
        return self._beside(text, folder)

    def _beside(self, text: str, folder: str) -> set[str]:
        """Templates and tables beside a module, or in a folder below it."""
        if not re.search(r"\.\w", text) or text.endswith(".py"):
            return set()
        below = (name for name in self.tree.below(folder) if not name.endswith(".py"))
        return {name for name in below if PurePosixPath(name).match(text)}

    def _whole(self, name: str) -> set[str]:
        folder = next((folder_name for folder_name in WHOLE if name.startswith(folder_name)), None)
        return self.tree.below(folder.rstrip("/")) if folder else {name}


def _package(path: PurePosixPath) -> str:
    """The dotted name of a module's package."""
    return ".".join(path.parts[path.parts.index("src") + 1 if "src" in path.parts else 0 : -1])


def _strings(source: ast.AST) -> Iterator[tuple[str, bool]]:
    """Texts that may name a file, and whether they stand where only a path does; `a / "b" / "c"` is one, "b/c"."""
    inner = set[ast.AST]()
    for node in ast.walk(source):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and node not in inner:
            yield "/".join(_chain(node, inner)), True
        elif isinstance(node, ast.Call) and _called(node) in ("Path", "joinpath", "glob", "rglob"):
            constants = [argument for argument in node.args if isinstance(argument, ast.Constant)]
            inner.update(constants)
            yield from ((str(argument.value), True) for argument in constants)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
            yield node.value, False


def _chain(node: ast.expr, inner: set[ast.AST]) -> list[str]:
    """The constants at the end of a chain of divisions, and of the `Path` it begins with."""
    inner.add(node)
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        right = _chain(node.right, inner)
        return [*_chain(node.left, inner), *right] if right else _chain(node.left, inner)
    if isinstance(node, ast.Call) and _called(node) == "Path" and len(node.args) == 1:
        return _chain(node.args[0], inner)
    return []


def _called(node: ast.Call) -> str:
    """The last part of a function's name."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _starts_command(source: ast.AST) -> bool:
    """Whether the command is started or called: a list begins with its name, or has it after `-m`."""
    for node in ast.walk(source):
        if isinstance(node, ast.List | ast.Tuple):
            values = [element.value if isinstance(element, ast.Constant) else None for element in node.elts]
            if values[:1] == ["understudy"] or ("-m", "understudy") in pairwise(values):
                return True
    return False
