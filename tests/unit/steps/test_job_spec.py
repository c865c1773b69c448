from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from understudy.graph import Node, nodes
from understudy.jobs.payload import Serving, TrainingJob
from understudy.jobs.trainings import training_settings
from understudy.models.user_code import user_code
from understudy.recipe import Recipe, SavedLayers, Start
from understudy.steps.job_spec import _factories, evaluation_spec, serving_spec, training_spec
from understudy.steps.step import Work
from understudy.store import Run, Store


def node(recipe: Recipe, name: str) -> Node:
    (match,) = (node for node in nodes(recipe) if node.name == name)
    return match


@pytest.mark.parametrize("profiled", [False, True])
def test_a_training_of_a_run_that_is_profiled_is_recorded(
    store: Store, run: Run, digits: Recipe, profiled: bool
) -> None:
    if profiled:
        run.profiles.mkdir()
    lease = store.acquire("key")
    assert lease is not None
    decided_by: Any = {"inputs": dict.fromkeys(("examples", "student"), 64 * "a"), "world": {}}
    work = Work("control", store, run, digits, decided_by, lease, lease.staging())
    spec = training_spec(work, node(digits, "control"), None)
    assert spec.profile is profiled
    assert not evaluation_spec(work, ["student"], {}).profile


def test_a_job_has_the_teacher_kept_as_the_recipe_says(
    store: Store, run: Run, digits: Recipe, change: Callable[..., Recipe]
) -> None:
    recipe = change(digits, "student.teacher_precision=nf4", "student.teacher_shards=1")
    lease = store.acquire("key")
    assert lease is not None
    decided_by: Any = {"inputs": dict.fromkeys(("examples", "teacher"), 64 * "a"), "world": {}}
    work = Work("distill", store, run, recipe, decided_by, lease, lease.staging())
    payload = training_spec(work, node(recipe, "distill"), None).payload
    assert isinstance(payload, TrainingJob)
    assert (payload.teacher_precision, payload.teacher_shards) == ("nf4", 1)


def test_a_job_says_which_source_its_factories_have(
    digits: Recipe, change: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _factories(digits) == {}
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "nets_of_a_job.py").write_text("def small(): ...")
    recipe = change(digits, "student.model={factory: 'nets_of_a_job:small'}")
    assert _factories(recipe) == {"nets_of_a_job:small": user_code("nets_of_a_job").source}


def test_a_version_is_scored_by_one_process(
    store: Store, run: Run, digits: Recipe, change: Callable[..., Recipe]
) -> None:
    recipe = change(digits, "resources.evaluate={processes: 4, threads: 1}")
    lease = store.acquire("key")
    assert lease is not None
    work = Work("register", store, run, recipe, {"inputs": {}, "world": {}}, lease, lease.staging())  # type: ignore[typeddict-item]
    spec = serving_spec(work, lease.folder.parent / "served")
    assert (spec.world_size, spec.role, spec.section) == (1, "serving", "resources.evaluate")
    assert spec.payload == Serving(folder=str(lease.folder.parent / "served"))


def test_the_first_training_of_student_and_control_has_the_layers_that_it_starts_from(
    store: Store, run: Run, digits: Recipe, change: Callable[..., Recipe]
) -> None:
    recipe = change(digits, "student.start.layers=[2, 4]")
    lease = store.acquire("key")
    assert lease is not None
    for name in ("control", "distill"):
        decided_by: Any = {"inputs": {"examples": 64 * "a", "teacher": 64 * "b"}, "world": {}}
        work = Work(name, store, run, recipe, decided_by, lease, lease.staging())
        payload = training_spec(work, node(recipe, name), None).payload
        assert isinstance(payload, TrainingJob)
        start = Start(teacher="teacher", layers=(2, 4))
        assert payload.start == SavedLayers(str(store.objects.path(64 * "b")), start)
        assert (payload.initial, payload.later_starts) == (None, {})
    assert training_settings(recipe, node(recipe, "teacher")).later_starts == {"student": start}
