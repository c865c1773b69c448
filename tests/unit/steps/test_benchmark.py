"""The benchmark's key, its check before anything runs, and the files that its job gets."""

import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.errors import InputError, UnderstudyError
from understudy.graph import nodes
from understudy.recipe import Recipe
from understudy.steps import benchmark, steps_of
from understudy.steps.evidence import reported_recipe
from understudy.steps.recipe_check import Here, findings
from understudy.store import Store

Keys = Callable[..., dict[str, str]]
Change = Callable[..., Recipe]
TASK = """
task: colours
dataset_path: json
dataset_kwargs: {data_files: {test: colours.jsonl}}
test_split: test
output_type: multiple_choice
"""


INSTALLED = metadata.version


def without_lm_eval(name: str) -> str:
    if name == "lm-eval":
        raise metadata.PackageNotFoundError(name)
    return INSTALLED(name)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "colours.yaml").write_text(TASK)
    (folder / "colours.jsonl").write_text('{"thing": "grass"}')
    return folder


@pytest.fixture
def recipe(pydoc: Recipe, change: Change, tasks: Path) -> Recipe:
    return change(pydoc, f"evaluate.lm_eval={{tasks: [colours], include: {tasks}}}")


def test_only_a_recipe_with_tasks_has_the_node(pydoc: Recipe, recipe: Recipe) -> None:
    assert "benchmark" not in [node.name for node in nodes(pydoc)]
    by_name = {node.name: node for node in nodes(recipe)}
    assert by_name["benchmark"].inputs == by_name["evaluate"].inputs
    assert "benchmarks" in by_name["gate"].inputs
    assert "benchmarks" in by_name["register"].inputs


def test_tasks_repeat_what_shows_them_and_nothing_else(
    keys: Keys, pydoc: Recipe, recipe: Recipe, change: Change, tasks: Path
) -> None:
    assert "lm_eval" not in json.dumps(reported_recipe(pydoc))
    assert "lm_eval" not in json.dumps(pydoc.model_dump(mode="json"))
    without, before = keys(pydoc), keys(recipe)
    shown = {"benchmark", "gate", "register"}
    assert {name for name in before if before[name] != without.get(name)} == shown
    for override in ("num_fewshot=1", "limit=3", "batch_size=2"):
        after = keys(change(recipe, f"evaluate.lm_eval.{override}"))
        assert {name for name in after if after[name] != before[name]} == shown
    (tasks / "colours.jsonl").write_text('{"thing": "snow"}')
    after = keys(recipe)
    assert {name for name in after if after[name] != before[name]} == shown


def test_where_the_tasks_lie_has_no_say(keys: Keys, recipe: Recipe, change: Change, tasks: Path) -> None:
    before = keys(recipe)
    moved = tasks.rename(tasks.with_name("moved"))
    assert keys(change(recipe, f"evaluate.lm_eval.include={moved}")) == before


def test_the_version_of_lm_eval_is_a_part_of_the_key(
    keys: Keys, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, version = keys(recipe), metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "9.9" if name in ("lm_eval", "lm-eval") else version(name))
    after = keys(recipe)
    assert {name for name in after if after[name] != before[name]} == {"benchmark", "gate", "register"}


def test_a_recipe_is_checked_with_its_tasks(
    recipe: Recipe, change: Change, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def problems(recipe: Recipe) -> list[Any]:
        return [(path, why) for path, why in findings(recipe, Here()).problems if path[0] == "evaluate"]

    assert problems(recipe) == []
    ((path, why),) = problems(change(recipe, "evaluate.lm_eval.tasks=[others]"))
    assert path == ("evaluate", "lm_eval", "tasks")
    assert "it has colours" in why
    (tasks / "colours.jsonl").unlink()
    ((path, why),) = problems(recipe)
    assert path == ("evaluate", "lm_eval")
    assert "there is no file colours.jsonl" in why
    unknown = findings(recipe, Here(data=False)).unknown
    assert any(text.startswith("evaluate.lm_eval: ") for text in unknown)

    monkeypatch.setattr(metadata, "version", without_lm_eval)
    ((_, why),) = problems(recipe)
    assert "pip install 'understudy[lm-eval]'" in why


def test_a_file_that_was_changed_since_the_key_stops_the_step(
    tmp_path: Path, recipe: Recipe, store: Store, tasks: Path
) -> None:
    section = steps_of(recipe)["benchmark"].section(recipe, store)
    lease = SimpleNamespace(folder=tmp_path / "work" / "lease", check=lambda: None)
    lease.folder.mkdir(parents=True)
    work: Any = SimpleNamespace(recipe=recipe, lease=lease, decided_by={"recipe": section})
    (tasks / "colours.jsonl").write_text('{"thing": "snow"}')
    with pytest.raises(UnderstudyError, match="a file of the tasks was changed during the run; run again"):
        benchmark._task_files(work)
    (tasks / "colours.jsonl").write_text('{"thing": "grass"}')
    folder = benchmark._task_files(work)
    assert (folder / "colours" / "0.jsonl").read_text() == '{"thing": "grass"}'
    assert json.loads((folder / "tasks.json").read_text())[0]["task"] == "colours"
    assert benchmark._task_files(work) == folder, "a job of an earlier attempt may read it"
    assert not list(lease.folder.iterdir())


def test_a_missing_extra_is_named_before_anything_runs(
    recipe: Recipe, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", without_lm_eval)
    with pytest.raises(InputError, match=r"^evaluate\.lm_eval: lm-eval is not installed here: pip install"):
        steps_of(recipe)["benchmark"].section(recipe, store)
