"""The revision of a step's code: a digest of all source that it can reach, and the versions of its libraries.

Both come from the source with ast, following imports (also those inside functions), without importing anything.
Comments, docstrings (those of attributes, too) and layout do not count. A template (.j2) counts for the modules
beside it that name it.
"""

import ast
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypedDict

from packaging.requirements import Requirement

from understudy import __version__
from understudy.imports import import_statements
from understudy.store.files import sha256

PACKAGE = "understudy"
TRAINING = ("understudy.train.job",)
"""The entry module of a training; code that only carries messages, logs and files to and from it is above."""
AGENT = ("understudy.agent.worker", "understudy.agent.node")
"""The entry modules of a job's pods."""

# Code that carries a step's bytes and messages but does not affect its numbers: the key itself contains the recipe's
# values and the inputs' digests.
CARRIERS = ("understudy.errors", "understudy.recipe", "understudy.revision", "understudy.store")
"""Modules, or packages with all their modules."""


class Revision(TypedDict):
    """Everything that determines a step's numbers besides its recipe section and inputs."""

    source: str
    """A digest."""
    libraries: Mapping[str, str]
    """Distribution and version, by import name."""
    python: str


def revision(
    modules: tuple[str, ...],
    root: Path = Path(__file__).parent,
    functions: tuple[Callable[..., Any], ...] = (),
    parts: tuple[tuple[str, str], ...] = (),
) -> Revision:
    """The revision of a step.

    Args:
        modules: the entry modules of the step.
        root: the package's folder.
        functions: the callers of those modules. Each counts with all that it uses of its module, without imports.
        parts: functions and constants, as a module and a name. Each counts with all that it uses of its module, and
            with the imports in that.
    """
    used = {f"{module}:{name}": _used(module, name, root) for module, name in parts if _file(module, root)}
    assert all(used.values()), [name for name, statements in used.items() if not statements]
    imported = {name for statements in used.values() for name in _imported(statements)}
    sources, libraries = _closure(modules, root, imported)
    sources |= {name: _dumped(statements) for name, statements in used.items()}
    for function in functions:
        if function.__module__.startswith(f"{PACKAGE}."):
            statements = _used(function.__module__, function.__name__, root)
            sources[f"{function.__module__}:{function.__name__}"] = _dumped(statements)
    text = "".join(f"{name}\n{sources[name]}\n" for name in sorted(sources))
    return {
        "source": sha256(text.encode()),
        "libraries": {name: version(name) for name in sorted(libraries)},
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def build() -> str:
    """The package's version and a digest of AGENT's source, which can differ between two images of one version."""
    return f"{__version__}+{revision(AGENT)['source'][:12]}"


def commit() -> str:
    """The commit of this code: of its checkout, or as fetched from Git by pip; empty if unknown."""
    root = Path(__file__).parents[2]
    if (root / ".git").exists():
        return _checked_out(root / ".git")
    try:
        direct = json.loads(metadata.distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return ""
    return str(direct.get("vcs_info", {}).get("commit_id", ""))


def _checked_out(git: Path) -> str:
    """The commit of a checkout's HEAD, read without git (gitrepository-layout(5))."""
    try:
        if git.is_file():  # a worktree
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").exists() else git
        name = head.removeprefix("ref: ")
        if (common / name).exists():
            return (common / name).read_text().strip()
        packed = (line.split() for line in (common / "packed-refs").read_text().splitlines())
        return next((line[0] for line in packed if line[1:] == [name]), "")
    except OSError:
        return ""


def modules_reached(modules: tuple[str, ...], root: Path = Path(__file__).parent) -> set[str]:
    """The package's modules that are part of a step's revision."""
    return set(_closure(modules, root)[0])


def _closure(modules: tuple[str, ...], root: Path, imported: Iterable[str] = ()) -> tuple[dict[str, str], set[str]]:
    """The source of modules and of all that they import, by name, and the libraries that these import.

    Args:
        modules: the entry modules.
        root: the package's folder.
        imported: modules that are imported besides.
    """
    todo, sources, libraries = [*modules, *_ours(imported)], dict[str, str](), _libraries(imported)
    seen, templates_in = {PACKAGE}, dict[Path, list[Path]]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        path = None if _is_carrier(name) else _file(name, root)
        if path is None:
            continue
        stat = path.stat()
        sources[name], names = _parse(path, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
        if path.parent not in templates_in:
            templates_in[path.parent] = sorted(path.parent.glob("*.j2"))
        templates = [template for template in templates_in[path.parent] if template.name in sources[name]]
        sources[name] += "".join(sha256(template.read_bytes()) for template in templates)
        todo += _ours(names)
        libraries |= _libraries(names)
    return sources, libraries & (distributions().keys() | pinned().keys())


def _ours(imported: Iterable[str]) -> list[str]:
    """The package's modules among imported names, with the packages around them."""
    ours = [module.split(".") for module in imported if module.split(".")[0] == PACKAGE]
    return [".".join(module[:end]) for module in ours for end in range(1, len(module) + 1)]


def _libraries(imported: Iterable[str]) -> set[str]:
    return {module.split(".")[0] for module in imported} - {PACKAGE}


def _is_carrier(module: str) -> bool:
    return any(module == carrier or module.startswith(f"{carrier}.") for carrier in CARRIERS)


def _used(module: str, function: str, root: Path) -> dict[str, ast.stmt]:
    """A function or constant and everything in its module that it uses, by name, without docstrings."""
    path = _file(module, root)
    assert path is not None
    tree = ast.parse(path.read_bytes())
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    todo, used = [function], dict[str, ast.stmt]()
    while todo:
        name = todo.pop()
        if name in used or name not in defined:
            continue
        todo += [word.id for word in ast.walk(defined[name]) if isinstance(word, ast.Name)]
        _strip(defined[name])
        used[name] = defined[name]
    return used


def _dumped(statements: Mapping[str, ast.stmt]) -> str:
    return "".join(f"{name}\n{ast.dump(statements[name])}\n" for name in sorted(statements))


def _imported(statements: Mapping[str, ast.stmt]) -> list[str]:
    """The names that statements import, also those inside functions."""
    return [name for statement in statements.values() for name in _imports(statement)]


def _imports(tree: ast.AST) -> list[str]:
    return [name for statement in import_statements(tree) for name in statement.candidates]


def _strip(tree: ast.AST) -> None:
    """Remove docstrings, of attributes too: all strings that are statements."""
    for node in ast.walk(tree):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                setattr(node, block, [statement for statement in statements if not _is_string(statement)])


def _is_string(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Constant(str())):
            return True
        case _:
            return False


def _file(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split(".")[1:])
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


@cache
def _parse(path: Path, *_touched: int) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(path.read_bytes())
    imported = tuple(_imports(tree))
    _strip(tree)
    return ast.dump(tree), imported


@cache
def distributions() -> dict[str, str]:
    """Installed distributions by import name; the alphabetically first of several (mlflow, mlflow-skinny)."""
    return {name: min(names) for name, names in metadata.packages_distributions().items()}


@cache
def pinned() -> dict[str, str]:
    """Libraries that the package pins to one version. A step that only launches a training may lack them."""
    required = [Requirement(text) for text in metadata.requires(PACKAGE) or ()]
    specifiers = [(requirement.name, specifier) for requirement in required for specifier in requirement.specifier]
    return {name: specifier.version for name, specifier in specifiers if specifier.operator == "=="}


def version(module: str) -> str:
    """The distribution of a module and its version: the installed one, or else the pinned one."""
    distribution = distributions().get(module)
    return f"{distribution} {metadata.version(distribution)}" if distribution else f"{module} {pinned()[module]}"
