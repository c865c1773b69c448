"""The imports of a source, read with ast: nothing is imported.

Imports inside functions count. Those for type checking alone do not, since no run executes them.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

FOR_TYPES = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


@dataclass(frozen=True)
class Import:
    """A statement `import module`, or `from module import names`."""

    module: str
    """The dotted name."""
    names: tuple[str, ...] = ()

    @property
    def candidates(self) -> list[str]:
        """Dotted names that may be modules: the module, and each name, which may also be something inside it."""
        return [self.module, *(f"{self.module}.{name}" for name in self.names)]


def import_statements(source: ast.AST, package: str = "") -> Iterator[Import]:
    """The imports of a source, at any depth and in no order.

    Args:
        source: the parsed module, or a part of it.
        package: the module's package, for relative imports; without it, they are left out.
    """
    todo = [source]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (Import(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if module := _absolute(node, package):
                yield Import(module, tuple(alias.name for alias in node.names))
        elif isinstance(node, ast.If) and ast.unparse(node.test) in FOR_TYPES:
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """The dotted name of the module; empty for a relative import that leaves the package."""
    if not node.level:
        return node.module or ""
    above = package.split(".") if package else []
    parts = above[: len(above) + 1 - node.level]  # one dot is the package itself
    return ".".join([*parts, *([node.module] if node.module else [])]) if parts else ""
