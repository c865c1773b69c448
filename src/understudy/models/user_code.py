"""A user's code: the imports of a model factory's module, read from source without importing it."""

import ast
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import machinery, util
from pathlib import Path

from understudy.imports import import_statements
from understudy.models.architectures import suggestion
from understudy.revision import PACKAGE, distributions, version
from understudy.store.files import sha256


@dataclass(frozen=True)
class UserCode:
    """The files and libraries that a module needs to be imported."""

    paths: tuple[Path, ...]
    """The user's files of modules and folders of packages."""
    libraries: frozenset[str]
    """Import names of installed libraries."""
    imports_understudy: bool

    @property
    def identity(self) -> dict[str, object]:
        """What can affect a model: {"source": digest, "libraries": {import name: distribution and version}}."""
        return {"source": self.source, "libraries": {name: version(name) for name in sorted(self.libraries)}}

    @property
    def source(self) -> str:
        """A digest of the user's files, independent of their location."""
        lines = sorted(
            f"{file.relative_to(path.parent)} {sha256(file.read_bytes())}\n"
            for path in self.paths
            for file in _files(path)
        )
        return sha256("".join(lines).encode())


def user_code(module: str) -> UserCode:
    """The code that a module needs to be imported elsewhere, with every top-level package that it imports as a whole.

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    first = module.partition(".")[0]
    pending, visited, user_paths, libraries = [first], {*sys.stdlib_module_names, PACKAGE}, list[Path](), set[str]()
    imports_understudy = first == PACKAGE
    while pending:
        name = pending.pop()
        imports_understudy |= name == PACKAGE
        if name in visited:
            continue
        visited.add(name)
        paths = _locations(name)
        if not paths and name == first:
            raise ModuleNotFoundError(first)
        if any(_is_installed(path) for path in paths):
            libraries |= {name} & distributions().keys()
        else:
            user_paths += paths
            pending += [imported for path in paths for file in _files(path) for imported in _imports_of(file)]
    return UserCode(tuple(sorted(user_paths)), frozenset(libraries), imports_understudy)


def search_path(folder: Path) -> list[str]:
    """The import path of a recipe's factories, which comes before the environment's modules: the recipe's folder, to
    which its paths are relative, then the current one, then PYTHONPATH.
    """
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return list(dict.fromkeys([str(folder.absolute()), str(Path.cwd()), *filter(None, python_path)]))


def environment(folder: Path) -> dict[str, str]:
    """Environment variables that make processes use search_path().

    `python -m` puts the current folder before PYTHONPATH, and would import a module of the same name from it.
    PYTHONSAFEPATH prevents that. Child processes inherit both, so every step and every rank imports the same module.
    """
    return {"PYTHONPATH": os.pathsep.join(search_path(folder)), "PYTHONSAFEPATH": "1"}


def problem(factory: str, search_path: Sequence[str]) -> str:
    """The problem with a factory, package.module:function, detected in its source; empty if there is none.

    Args:
        factory: the recipe's value.
        search_path: folders to search first.
    """
    module, _, name = factory.partition(":")
    spec = _find_spec(module, search_path)
    if isinstance(spec, str):
        return spec
    if not spec.has_location or not spec.origin or not spec.origin.endswith(".py"):
        return ""  # there is no source to check
    try:
        tree = ast.parse(Path(spec.origin).read_bytes())
    except (SyntaxError, ValueError) as error:
        return f"{spec.origin} is no Python ({error})"
    names = set(_bound_names(tree))
    return (
        "" if name in names or names & {"*", "__getattr__"} else f"{spec.origin} has no {name}{suggestion(name, names)}"
    )


def _find_spec(module: str, search_path: Sequence[str]) -> machinery.ModuleSpec | str:
    """A module's spec, without importing its packages; or the error message if there is no such module."""
    package_name, _, part = module.rpartition(".")
    folders = [*search_path, *sys.path]
    if package_name:
        package_spec = _find_spec(package_name, search_path)
        if isinstance(package_spec, str):
            return package_spec
        folders = list(package_spec.submodule_search_locations or [])
    spec = machinery.PathFinder.find_spec(module, folders)
    if spec is None and not package_name:
        spec = util.find_spec(module)  # built in, or installed with its own finder
    if spec is not None:
        return spec
    suggested_folders = folders if package_name else search_path  # suggest only the user's modules, never netrc
    modules = {path.stem for folder in suggested_folders for path in Path(folder).glob("*.py")}
    searched = "in the recipe's folder, in the current one, in PYTHONPATH or in this environment"
    return f"there is no module {module} {searched}{suggestion(part, modules)}"


def _bound_names(tree: ast.AST) -> Iterator[str]:
    """All names that a source may bind, at any depth; * for a star import."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=alias):
                yield alias or name.partition(".")[0]


def imported_libraries(code: Mapping[str, str]) -> set[str]:
    """Import names of the installed libraries that a pretrained model's bundled code imports."""
    return {name for text in code.values() for name in _imports(text)} & distributions().keys()


def _locations(module: str) -> list[Path]:
    """A top-level module's file, or a package's folders; empty if it does not exist: an import may be optional."""
    spec = util.find_spec(module)
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(folder) for folder in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def _is_installed(path: Path) -> bool:
    return any(path.is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _imports_of(file: Path) -> list[str]:
    """A file's imports; empty if it cannot be parsed: if it is needed, its import raises a better error."""
    try:
        return list(_imports(file.read_bytes()))
    except (SyntaxError, ValueError):
        return []


def _imports(source: str | bytes) -> Iterator[str]:
    """Top-level names of a source's absolute imports."""
    return (statement.module.partition(".")[0] for statement in import_statements(ast.parse(source)))
