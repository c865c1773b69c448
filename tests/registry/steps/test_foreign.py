"""A classifier of scikit-learn's, registered by MLflow's own means, as the champion."""

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import ROOT
from understudy.recipe import Recipe
from understudy.recipe.file import load
from understudy.steps.champion import champion_input, champion_problem
from understudy.store import Run, Store

LABELS = ["a", "b"]
DIGITS = ROOT / "recipes" / "digits.yaml"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def examples(store: Store) -> str:
    random, staged = np.random.default_rng(0), store.folder / "work" / "examples"
    staged.mkdir()
    labels = np.arange(60) % 2
    images = (random.integers(0, 120, (60, 1, 8, 8)) + 12 * labels[:, None, None, None]).astype(np.uint8)
    np.save(staged / "test.labels.npy", labels)
    np.save(staged / "test.images.npy", images)
    facts = {"task": "image-classification", "labels": LABELS, "image": {"size": 8, "channels": 1}}
    (staged / "examples.json").write_text(json.dumps(facts))
    return store.objects.publish(staged, "examples", {"records": "r" * 64})


@pytest.fixture
def theirs(tmp_path: Path, store: Store, examples: str) -> Iterator[np.ndarray]:
    """Registers a classifier, as `digits`, with the alias champion; hands out its own answers to the test split."""
    before = dict(os.environ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own, about its types and about where it keeps files
        yield _registered(tmp_path, store.objects.path(examples))
    os.environ.clear()
    os.environ.update(before)


def _registered(home: Path, folder: Path) -> np.ndarray:
    import mlflow
    from sklearn.linear_model import LogisticRegression

    uri = os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{home}/mlflow.db"
    pixels = np.load(folder / "test.images.npy").reshape(60, -1)
    targets = np.array(LABELS)[np.load(folder / "test.labels.npy")]
    model = LogisticRegression(C=1e-6).fit(pixels[:40], targets[:40])
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("theirs", artifact_location=str(home / "files")))
    signature = mlflow.models.infer_signature(pixels, model.predict(pixels))
    with mlflow.start_run():
        mlflow.sklearn.log_model(
            model, name="m", signature=signature, registered_model_name="digits", pip_requirements=["scikit-learn"]
        )
    mlflow.MlflowClient(uri).set_registered_model_alias("digits", "champion", "1")
    correct: np.ndarray = model.predict(pixels) == targets
    return correct


def new_run(store: Store, recipe: Recipe) -> Run:
    uri = os.environ["MLFLOW_TRACKING_URI"]
    return store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), uri)


def test_a_champion_by_other_means_is_compared_where_the_recipe_trusts_it(
    theirs: np.ndarray, store: Store, examples: str
) -> None:
    run = new_run(store, load(DIGITS))
    assert champion_input(store, run, {"examples": examples}) == {}
    assert "was not made by understudy" in champion_problem(run)
    assert "register.trust_champion to true" in champion_problem(run)

    trusting = new_run(store, load(DIGITS, ["register.trust_champion=true"]))
    inputs = champion_input(store, trusting, {"examples": examples})
    assert champion_problem(trusting) == ""
    folder = store.objects.path(inputs["foreign"])
    with np.load(folder / "results.npz") as results:
        assert list(results) == ["champion.correct"]
        assert np.array_equal(results["champion.correct"], theirs)
    assert 0.5 < theirs.mean() < 1
    assert json.loads((folder / "champion.json").read_text()) == {"name": "digits", "version": "1"}
    again = new_run(store, load(DIGITS, ["register.trust_champion=true"]))
    assert champion_input(store, again, {"examples": examples}) == inputs
