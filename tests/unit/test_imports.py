import ast

import pytest

from understudy.imports import Import, import_statements


def imported(text: str, package: str = "") -> set[Import]:
    return set(import_statements(ast.parse(text), package))


@pytest.mark.parametrize(
    "text",
    [
        "import a.b, c as d",
        "def f():\n    import a.b\n    class C:\n        import c",
        "try:\n    import a.b\nexcept ImportError:\n    import c",
        "if TYPE_CHECKING:\n    import typed\nelse:\n    import a.b\nimport c",
        "import c\nif typing.TYPE_CHECKING:\n    import typed\nelif x:\n    import a.b",
    ],
)
def test_imports_at_any_depth_count_but_for_those_of_types_alone(text: str) -> None:
    assert imported(text) == {Import("a.b"), Import("c")}


def test_an_imported_name_may_be_a_module() -> None:
    (statement,) = imported("from a.b import c, d as e")
    assert statement == Import("a.b", ("c", "d"))
    assert statement.candidates == ["a.b", "a.b.c", "a.b.d"]
    assert Import("a.b").candidates == ["a.b"]


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("from . import x", "a.b"),
        ("from .c import x", "a.b.c"),
        ("from .. import x", "a"),
        ("from ..c import x", "a.c"),
    ],
)
def test_relative_imports_need_the_package(text: str, module: str) -> None:
    assert imported(text, "a.b") == {Import(module, ("x",))}
    assert imported(text) == set()


def test_a_relative_import_that_leaves_the_package_is_left_out() -> None:
    assert imported("from ... import x", "a.b") == set()
    assert imported("from ...c import x", "a.b") == set()


def test_a_deep_expression_is_read() -> None:
    text = " + ".join(["x"] * 1500) + "\nimport a"
    assert imported(text) == {Import("a")}
