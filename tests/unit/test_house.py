import ast
import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.house import MOST, Module, cycles, imports, lines_by_folder, longest_chain, modules
from understudy.recipe.tasks import TASKS


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


def test_no_folder_has_too_many_lines_of_the_package() -> None:
    lines = lines_by_folder(modules(Path("src")))
    most = MOST * sum(lines.values())
    assert {folder: count for folder, count in lines.items() if count > most} == {}


def test_cycles_and_chains_are_found_through_imports_inside_functions(toy: list[Module]) -> None:
    graph = imports(toy)
    assert cycles(graph) == [{"toy.a", "toy.b"}]
    assert longest_chain(graph) == ["toy.top", "toy.a", "toy.under.low"]
    assert {module.name: module.code for module in toy}["toy.under.low"] == 1


def test_contributing_gives_the_order_of_layers_that_the_linter_checks() -> None:
    contracts = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = [layer.split(" : ") for layer in contracts[0]["layers"]]
    written = re.search(r"Imports point one way: ([^.]*)\.", Path("CONTRIBUTING.md").read_text())
    assert written
    assert [re.split(r",\s+", layer) for layer in re.split(r"\s+->\s+", written[1])] == checked


TASKS_HOMES = ("tasks/", "data/sources/", "recipe/tasks.py")
"""Where a task may be named: its module, the registry's line, and the declarations of sources."""


def test_a_task_is_named_in_its_module_the_registry_and_the_sources_alone() -> None:
    files = [*Path("src/understudy").rglob("*.py"), *Path("src/understudy").rglob("*.j2")]
    files += [*Path("pipelines").rglob("*.py"), *Path("components").rglob("*.py")]
    # A name of one word is one in other places, too: there, only a comparison with a task counts.
    pattern = "|".join(name if "-" in name else rf"(?:task|load\().*['\"]{name}['\"]" for name in TASKS)
    named = [str(path) for path in files if re.search(pattern, path.read_text())]
    assert [path for path in named if not path.removeprefix("src/understudy/").startswith(TASKS_HOMES)] == []


def test_a_tasks_module_imports_nothing_of_the_package_at_its_top() -> None:
    """MLflow stores it with a version, which is served where the package is not installed."""
    for name in TASKS.values():
        path = Path("src", *name.split(".")).with_suffix(".py")
        top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert [ast.unparse(node) for node in top] == ["from typing import TYPE_CHECKING, Any"], name


ROLES_HOMES = ("graph.py", "recipe/")
"""Where roles and nodes have their names."""
OTHER_MEANINGS = {
    "cli/outcome.py": "a field of the verdict",
    "cli/review.py": "columns of a table",
    "evaluate/gate.py": "a field of the verdict",
    "evaluate/report.py": "a phase of a training step",
    "plan/ledger.py": "a kind of memory",
    "plan/rank_models.py": "a kind of memory",
    "registry/names.py": "an alias in MLflow",
    "registry/logged_runs.py": "a key of the recipe",
    "registry/review.py": "tags and columns of a review",
    "steps/cards.py": "a field of the verdict",
    "steps/champion.py": "a folder",
    "steps/evidence.py": "keys of the recipe",
    "train/learning.py": "a phase of a training step",
    "train/pipelined.py": "a phase of a training step",
    "train/profile.py": "a phase of a training step",
}
"""Files in which such a word is no role or node."""


def test_a_role_is_named_in_the_recipe_and_its_graph_alone() -> None:
    names = {"teacher", "student", "control", "champion", "distill"}
    named = {
        path.relative_to("src/understudy").as_posix()
        for path in Path("src/understudy").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    }
    paths = {path for path in named if not path.startswith(ROLES_HOMES)}
    assert paths - OTHER_MEANINGS.keys() == set(), "take the constants of recipe/roles.py"
    assert OTHER_MEANINGS.keys() - paths == set(), "take it out of OTHER_MEANINGS"
    for folder in ("pipelines", "components"):
        texts = [ast.unparse(ast.parse(path.read_text())) for path in Path(folder).rglob("*.py")]
        assert [name for name in names for text in texts if f"'{name}'" in text] == []
