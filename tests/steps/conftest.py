from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.steps.champions import FACTS, described
from understudy.recipe import Recipe
from understudy.recipe.file import from_values, load
from understudy.steps import STEPS, step_names
from understudy.steps.graph import inputs_of
from understudy.steps.step import parts
from understudy.store import Run, StepState, Store
from understudy.store.files import canonical, sha256

Keys = Callable[..., dict[str, str]]
RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def digits() -> Recipe:
    return load(RECIPES / "digits.yaml")


@pytest.fixture
def pydoc() -> Recipe:
    return load(RECIPES / "pydoc.yaml")


@pytest.fixture
def change() -> Callable[..., Recipe]:
    """A recipe with overrides."""
    return lambda recipe, *overrides: from_values(recipe.model_dump(mode="json", by_alias=True), overrides, "test")


@pytest.fixture
def keys(store: Store) -> Keys:
    """The key of each step of a recipe's pipeline, were every step to give an object of its own for its key.

    `inputs` and `world` add, by step, what does not come from the pipeline: the champion, the tracking server.
    """

    def compute(
        recipe: Recipe,
        inputs: Mapping[str, Mapping[str, str]] = {},
        world: Mapping[str, Mapping[str, str]] = {},
    ) -> dict[str, str]:
        found: dict[str, str] = {}
        run = store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), "")
        for name in step_names(recipe):
            given = inputs_of(STEPS[name], run)
            decided_by: dict[str, Any] = parts(
                STEPS[name], recipe, store, {**given, **inputs.get(name, {})}, world.get(name, {})
            )
            found[name] = sha256(canonical(decided_by))
            run.record(StepState(name, "done", digest=sha256(f"the object of {found[name]}".encode())))
        return found

    return compute


@pytest.fixture
def run(store: Store, digits: Recipe) -> Run:
    return store.create_run(digits.name, digits.model_dump(mode="json", by_alias=True), "")


@pytest.fixture
def examples(store: Store, tmp_path: Path) -> str:
    return described(store, tmp_path / "examples", FACTS)
