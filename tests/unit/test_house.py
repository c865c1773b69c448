from pathlib import Path

import pytest

from benchmarks.house import MOST, Module, cycles, imports, lines_by_folder, longest_chain, modules


@pytest.fixture
def toy(tmp_path: Path) -> list[Module]:
    """A package in which a and b import each other, one of them inside a function, and top imports both."""
    package = tmp_path / "toy"
    (package / "under").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("def f():\n    from toy import b\n")
    (package / "b.py").write_text("import toy.a\nfrom toy.under import low\n")
    (package / "under" / "__init__.py").write_text("")
    (package / "under" / "low.py").write_text("# the lowest\nx = 1\n")
    (package / "top.py").write_text("from toy.a import f\n")
    return modules(tmp_path)


def test_no_folder_holds_too_much_of_the_package() -> None:
    lines = lines_by_folder(modules(Path("src")))
    most = MOST * sum(lines.values())
    assert {folder: held for folder, held in lines.items() if held > most} == {}


def test_cycles_and_chains_are_found_through_imports_inside_functions(toy: list[Module]) -> None:
    graph = imports(toy)
    assert cycles(graph) == [{"toy.a", "toy.b"}]
    assert longest_chain(graph) == ["toy.top", "toy.a", "toy.under.low"]
    assert {module.name: module.code for module in toy}["toy.under.low"] == 1
