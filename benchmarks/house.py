"""The package in numbers: lines by folder, and properties that make code hard to read or to change.

python -m benchmarks.house [FOLDER ...]

A folder is a source tree with one package in it, such as src or an older checkout's. The table has a column for each.
"""

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from understudy.imports import import_statements

LONG = 40  # lines of a function, signature and docstring included
MOST = 0.15  # of the package's lines, in the files of one folder
DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pragma)")

EMPTY = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

Graph = dict[str, set[str]]


@dataclass(frozen=True)
class Module:
    """A source file."""

    name: str
    folder: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """All of them, empty ones too."""
        return len(self.text.splitlines())

    @property
    def code(self) -> int:
        """Lines that hold code: no comments, no docstrings, no empty ones."""
        code_lines = {
            line for token in self.tokens if token.type not in EMPTY for line in range(token.start[0], token.end[0] + 1)
        }
        return len(code_lines - _docstring_lines(self.tree))

    @property
    def tokens(self) -> list[tokenize.TokenInfo]:
        """The tokens of the text."""
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))


def _docstring_lines(tree: ast.Module) -> set[int]:
    """The lines of strings that stand alone: docstrings, and texts below an attribute."""
    alone = (node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    return {line for node in alone for line in range(node.lineno, (node.end_lineno or 0) + 1)}


def modules(source: Path) -> list[Module]:
    """The modules of the package in a source tree."""
    (package,) = [path.parent for path in source.glob("*/__init__.py")]
    parsed = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        parsed.append(Module(name, str(path.parent.relative_to(package)), text, ast.parse(text)))
    return parsed


def lines_by_folder(modules: list[Module]) -> dict[str, int]:
    """Lines of the files that lie in each folder itself."""
    lines: dict[str, int] = {}
    for module in modules:
        lines[module.folder] = lines.get(module.folder, 0) + module.lines
    return lines


def comments(module: Module) -> int:
    """Comments that say something; those that tell a tool something do not count."""
    all_comments = [token.string for token in module.tokens if token.type == tokenize.COMMENT]
    return sum(not DIRECTIVE.match(comment) for comment in all_comments)


def long_functions(module: Module) -> list[str]:
    """The names of functions that are longer than they should be."""
    functions = (node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [f"{module.name}.{node.name}" for node in functions if (node.end_lineno or 0) - node.lineno >= LONG]


def untyped(module: Module) -> int:
    """How often something is a dict[str, Any]."""
    return len(re.findall(r"dict\[str, Any\]", module.text))


def imports(modules: list[Module]) -> Graph:
    """Which module imports which, those inside functions too, those for type checking alone not."""
    names = {module.name for module in modules}
    return {module.name: set(_imported(module.tree, names)) & names for module in modules}


def _imported(tree: ast.AST, names: set[str]) -> Iterator[str]:
    for statement in import_statements(tree):
        for name in statement.candidates[1:] or [statement.module]:
            yield name if name in names else statement.module


def reachable(graph: Graph, start: str) -> set[str]:
    """The modules that a module imports, directly or not; itself among them where it is in a cycle."""
    imported, todo = set[str](), list(graph[start])
    while todo:
        name = todo.pop()
        if name not in imported:
            imported.add(name)
            todo += graph[name]
    return imported


def cycles(graph: Graph) -> list[set[str]]:
    """Groups of modules that import each other, directly or not."""
    reach = {name: reachable(graph, name) for name in graph}
    groups = [{partner for partner in reach[name] if name in reach[partner]} for name in graph if name in reach[name]]
    return [group for number, group in enumerate(groups) if group not in groups[:number]]


def longest_chain(graph: Graph) -> list[str]:
    """The longest way from module to module; a group that imports itself counts as one."""
    group_of = {name: min(group) for group in cycles(graph) for name in group}
    merged: Graph = {}
    for name, imported in graph.items():
        group = group_of.get(name, name)
        merged.setdefault(group, set()).update(
            {group_of.get(imported_name, imported_name) for imported_name in imported} - {group}
        )
    chains: dict[str, list[str]] = {}

    def chain(name: str) -> list[str]:
        if name not in chains:
            longest = max((chain(imported_group) for imported_group in sorted(merged[name])), key=len, default=[])
            chains[name] = [name, *longest]
        return chains[name]

    return max((chain(name) for name in sorted(merged)), key=len)


def numbers(modules: list[Module]) -> dict[str, str]:
    """A package's column of the table."""
    total, code, graph = (
        sum(module.lines for module in modules),
        sum(module.code for module in modules),
        imports(modules),
    )
    table = {
        "files": f"{len(modules)}",
        "lines": f"{total:,}",
        "lines of code": f"{code:,}",
        "dict[str, Any] per 1,000 lines of code": f"{1000 * sum(map(untyped, modules)) / code:.1f}",
        "comments per 100 lines of code": f"{100 * sum(map(comments, modules)) / code:.1f}",
        f"functions over {LONG} lines": f"{sum(len(long_functions(module)) for module in modules)}",
        "files over 300 lines": f"{sum(module.lines > 300 for module in modules)}",
        "longest import chain": f"{len(longest_chain(graph))}",
        "cycles": f"{len(cycles(graph))}",
    }
    lines = lines_by_folder(modules)
    files = {folder: sum(module.folder == folder for module in modules) for folder in lines}
    for folder in sorted(lines):
        share = lines[folder] / total
        mark = " !" if share > MOST else ""
        table[f"{folder}/"] = f"{lines[folder]:,} in {files[folder]}, {share:.1%}{mark}"
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("src")])
    folders = parser.parse_args().folders
    columns = [numbers(modules(folder)) for folder in folders]
    rows = sorted(set().union(*columns), key=lambda row: (row.endswith("/"), _sort_key(row, columns)))
    print("| | " + " | ".join(map(str, folders)) + " |")
    print("|---|" + "---:|" * len(folders))
    for row in rows:
        print(f"| {row} | " + " | ".join(column.get(row, "") for column in columns) + " |")


def _sort_key(row: str, columns: list[dict[str, str]]) -> tuple[int, str]:
    """Numbers in the order of the table, folders by name."""
    return (0, row) if row.endswith("/") else (list(columns[0]).index(row), row)


if __name__ == "__main__":
    main()
