import filecmp
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import understudy
from tests import ROOT
from tests.unit.steps.champions import FACTS, described
from understudy.recipe import Recipe
from understudy.recipe.file import load
from understudy.revision import Revision, revision
from understudy.steps import identity, ingest, steps_of
from understudy.steps import step as step_module
from understudy.steps.graph import inputs_of
from understudy.steps.step import parts
from understudy.store import Run, StepState, Store
from understudy.store.files import canonical, sha256

Keys = Callable[..., dict[str, str]]
RECIPES = ROOT / "recipes"
SOURCE = Path(understudy.__file__).parent
USERS = (step_module, identity, ingest)
"""The modules that ask for a revision to make a key."""


@pytest.fixture(scope="session", autouse=True)
def source_read_once() -> Iterator[None]:
    """The package's own source stays as it is while tests run: every step's revision is looked up once, or again where
    a test gives libraries other versions.
    """
    revisions: dict[object, Revision] = {}

    def remembered(
        modules: tuple[str, ...],
        functions: tuple[Callable[..., Any], ...] = (),
        parts: tuple[tuple[str, str], ...] = (),
    ) -> Revision:
        key = (modules, functions, parts, metadata.version)
        if key not in revisions:
            revisions[key] = revision(modules, functions=functions, parts=parts)
        return revisions[key]

    with pytest.MonkeyPatch.context() as patch:
        for user in USERS:
            patch.setattr(user, "revision", remembered)
        yield


@pytest.fixture(scope="session")
def second_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package's source."""
    root = tmp_path_factory.mktemp("source") / "understudy"
    shutil.copytree(SOURCE, root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture
def copied(second_source: Path) -> Iterator[Callable[[pytest.MonkeyPatch], Path]]:
    """A copy of the source, to be edited: keys are made of it once it was asked for. As it was again, afterwards."""

    def enter(patch: pytest.MonkeyPatch) -> Path:
        for user in USERS:
            patch.setattr(user, "revision", partial(revision, root=second_source))
        return second_source

    yield enter
    for path in second_source.rglob("*.*"):
        original = SOURCE / path.relative_to(second_source)
        if not filecmp.cmp(original, path, shallow=False):
            shutil.copy(original, path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def pydoc() -> Recipe:
    return load(RECIPES / "pydoc.yaml")


@pytest.fixture
def keys(store: Store) -> Keys:
    """The key of each step of a recipe's pipeline, were every step to give an object of its own for its key.

    `inputs` and `world` add, by step, the parts from outside the pipeline: the champion, the tracking server.
    """

    def compute(
        recipe: Recipe,
        inputs: Mapping[str, Mapping[str, str]] = {},
        world: Mapping[str, Mapping[str, str]] = {},
    ) -> dict[str, str]:
        keys_by_step: dict[str, str] = {}
        run = store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), "")
        for name, step in steps_of(recipe).items():
            digests = inputs_of(step, run)
            decided_by: dict[str, Any] = parts(
                step, recipe, store, {**digests, **inputs.get(name, {})}, world.get(name, {})
            )
            keys_by_step[name] = sha256(canonical(decided_by))
            run.record(StepState(name, "done", digest=sha256(f"the object of {keys_by_step[name]}".encode())))
        return keys_by_step

    return compute


@pytest.fixture
def run(store: Store, digits: Recipe) -> Run:
    return store.create_run(digits.name, digits.model_dump(mode="json", by_alias=True), "")


@pytest.fixture
def examples(store: Store, tmp_path: Path) -> str:
    return described(store, tmp_path / "examples", FACTS)
