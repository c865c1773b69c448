import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.recipe.letters import LettersSource
from understudy.data.ingest import ingest
from understudy.data.sources import parquet
from understudy.data.sources.registry import source_identity
from understudy.errors import InputError
from understudy.recipe import Recipe
from understudy.recipe.data import Data
from understudy.recipe.file import dump, from_values, load, schema
from understudy.recipe.sources import SOURCES, serving
from understudy.store.files import Fingerprints

DIGITS = load(Path("recipes/digits.yaml")).model_dump(mode="json", by_alias=True)
GOOD = {"type": "letters", "letters": "ab"}


def rebuild() -> None:
    for model in (Data, Recipe):
        model.model_rebuild(force=True)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One file and one line: the line."""
    with monkeypatch.context() as patch:
        patch.setitem(SOURCES, "letters", "tests.unit.recipe.letters")
        rebuild()
        yield
    rebuild()


def recipe(source: object, **data: object) -> Recipe:
    return from_values({**DIGITS, "data": {**DIGITS["data"], **data, "source": source}}, [], "here")


def test_which_sources_serve_a_task_follows_from_the_sources() -> None:
    assert {"digits", "image-folder", "parquet"} <= {*serving("image-classification")}
    assert {"parquet", "text-files", "python-docs"} <= {*serving("causal-lm")}
    assert not {"digits", "image-folder"} & {*serving("causal-lm")}


def test_a_source_whose_columns_have_no_images_serves_no_task_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "SOURCE", dataclasses.replace(parquet.SOURCE, kinds=frozenset({"text", "label"})))
    assert "parquet" not in serving("image-classification")
    assert "parquet" in serving("text-classification")


@pytest.mark.usefixtures("registered")
def test_a_new_source_is_one_file_and_one_line(tmp_path: Path) -> None:
    loaded = recipe(GOOD)
    assert isinstance(loaded.data.source, LettersSource)
    assert "type: letters" in dump(loaded)
    assert "LettersSource" in schema()["$defs"]
    assert serving("image-classification")[-1] == "letters"
    assert source_identity(loaded.data.source, Fingerprints(tmp_path))["type"] == "letters"
    ingest(loaded.data, loaded.task, tmp_path, lambda done, total: None)
    assert json.loads((tmp_path / "records.json").read_text())["labels"] == ["a", "b"]


MISTAKES: list[tuple[object, str]] = [
    ({"letters": "ab"}, "data.source.type: required, but missing; one of "
     f"{', '.join(SOURCES)}, letters"),
    ({**GOOD, "type": "leters"}, "data.source.type: expected "
     f'{", ".join(SOURCES)}, letters, got "leters"; did you mean letters?'),
    ({"type": "letters"}, "data.source.letters: required, but missing"),
    ({**GOOD, "leters": "ab"}, "data.source.leters: unknown key; did you mean letters?"),
    ({**GOOD, "zzz": 1}, "data.source.zzz: unknown key; known here: type, letters, tools, colour, sizes, count"),
    ({**GOOD, "letters": 3}, "data.source.letters: expected text, got 3"),
    ({**GOOD, "letters": ""}, "data.source: give at least one letter"),
    ({**GOOD, "tools": 3}, "data.source.tools: expected a list, got 3"),
    ({**GOOD, "tools": [{"tool": "pen"}, {"tool": "brsh"}]}, "data.source.tools[1].tool: expected pen, brush, got "
     '"brsh"; did you mean brush?'),
    ({**GOOD, "tools": [{"width": 1}]}, "data.source.tools[0].tool: required, but missing; one of pen, brush"),
    ({**GOOD, "tools": [{"tool": "pen", "widht": 1}]}, "data.source.tools[0].widht: unknown key; did you mean width?"),
    ({**GOOD, "tools": [{"tool": "pen", "x": 1}]}, "data.source.tools[0].x: unknown key; known here: tool, width"),
    ({**GOOD, "tools": [{"tool": "pen", "width": 10}]}, "data.source.tools[0].width: must be at most 9, got 10"),
    ({**GOOD, "tools": [{"tool": "brush", "hairs": "corse"}]}, "data.source.tools[0].hairs: expected fine or coarse, "
     'got "corse"; did you mean coarse?'),
    ({**GOOD, "colour": {"grey": "dark"}}, 'data.source.colour.grey: expected a number, got "dark"'),
    ({**GOOD, "colour": {"ink": "RED"}}, 'data.source.colour.ink: expected text that fits ^[a-z]+$, got "RED"'),
    ({**GOOD, "colour": {"ink": "red", "inc": 1}}, "data.source.colour.inc: unknown key; did you mean ink?"),
    ({**GOOD, "sizes": {"big": {"tool": "pen", "widht": 1}}}, "data.source.sizes.big.widht: unknown key; did you mean "
     "width?"),
    ({**GOOD, "count": 1.5}, "data.source.count: expected a whole number or all, got 1.5"),
]  # fmt: skip


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("source", "message"), MISTAKES)
def test_every_kind_of_mistake_in_a_new_source_is_named_with_its_place_and_fix(source: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        recipe(source)
    assert str(caught.value) == f"here: {message}"


@pytest.mark.usefixtures("registered")
def test_a_new_source_is_told_that_it_has_no_records_for_a_task() -> None:
    pydoc = load(Path("recipes/pydoc.yaml")).model_dump(mode="json", by_alias=True)
    with pytest.raises(InputError, match="letters holds no records for the task causal-lm; use parquet, "):
        from_values({**pydoc, "data": {**pydoc["data"], "source": GOOD}}, [], "here")


def test_what_is_not_registered_is_no_source() -> None:
    with pytest.raises(InputError, match='python-questions, got "letters"'):
        recipe(GOOD)
