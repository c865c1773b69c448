"""Every key of a recipe is in the docs, and every named page exists."""

import re
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest

from understudy.recipe import objectives
from understudy.recipe.sources import SOURCES, load
from understudy.recipe.tasks import TASKS
from understudy.registry.task import served_task

RECIPES = Path("docs/using/recipes.md").read_text()


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_and_its_keys_are_in_the_docs(name: str) -> None:
    assert f"`{name}`" in RECIPES
    for key in load(name).section.model_fields.keys() - {"type"}:
        assert f"`{key}" in RECIPES or f".{key}`" in RECIPES, key


@pytest.mark.parametrize("name", TASKS)
def test_the_columns_of_a_served_version_are_fields_that_the_docs_name(name: str) -> None:
    facts: Any = {"image": {"size": 8}, "details": {"texts": 2}}
    columns = served_task(name).example(facts).keys()
    assert columns <= served_task(name).FIELDS.keys()
    (sentence,) = re.findall(
        "A column has the name of the task's field: (.*?)\\.", Path("docs/using/serving.md").read_text()
    )
    assert columns <= set(re.findall("`(.*?)`", sentence))


@pytest.mark.parametrize("name", objectives.OBJECTIVES)
def test_an_objective_and_its_keys_are_in_the_docs(name: str) -> None:
    section = objectives.load(name)
    assert get_args(section.model_fields["type"].annotation) == (name,)
    assert f"type: {name}" in RECIPES
    for key in section.model_fields.keys() - {"type"}:
        assert f"`student.distill.{name}.{key}`" in RECIPES


NAMED = re.compile(r"(?<![\w/.-])(docs/[\w/-]+\.md)(?:#([\w-]+))?")


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as Markdown makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_that_a_file_names_is_there() -> None:
    """Links between pages are for `make docs`; these are in messages, comments, manifests and the README."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    files = [Path(name) for name in listed if not name.endswith((".png", ".lock", "CHANGELOG.md"))]
    named = {
        (str(file), page, anchor)
        for file in files
        if file.is_file() and not file.is_symlink()
        for page, anchor in NAMED.findall(file.read_text(errors="ignore"))
    }
    assert len(named) > 50
    missing = [entry for entry in named if not Path(entry[1]).is_file()]
    assert not missing
    assert not [entry for entry in named if entry[2] and entry[2] not in anchors(Path(entry[1]))]


def test_the_readme_is_short() -> None:
    assert len(Path("README.md").read_text().split()) < 900
