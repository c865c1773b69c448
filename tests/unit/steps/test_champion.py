import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.steps.champions import FACTS, described, model, name_champion
from understudy.errors import Forbidden, UnderstudyError
from understudy.registry import champion as champions
from understudy.registry.champion import Champion
from understudy.steps.champion import champion_input, champion_problem
from understudy.store import Run, Store


def test_without_a_champion_there_is_nothing_to_compare_with(
    monkeypatch: pytest.MonkeyPatch, store: Store, run: Run, examples: str
) -> None:
    monkeypatch.setattr(champions, "champion", lambda uri, name: None)
    assert champion_input(store, run, {"examples": examples}) == {}
    assert champion_problem(run) == ""


def test_a_champion_in_the_store_is_an_input_and_in_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run, examples: str
) -> None:
    digest = model(store, tmp_path / "model")
    name_champion(monkeypatch, digest)
    assert champion_input(store, run, {"examples": examples}) == {"champion": digest}
    assert champion_problem(run) == ""
    assert digest in run.uses


@pytest.mark.parametrize("function", ["champion", "fetch"])
def test_a_missing_right_is_an_error_and_no_reason_to_reject_a_student(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run, examples: str, function: str
) -> None:
    digest = model(store, tmp_path / "model")
    store.objects.set_aside(digest)
    name_champion(monkeypatch, digest)

    def refused(*_: object) -> Champion:
        raise Forbidden("MLflow refuses access (403)")

    monkeypatch.setattr(champions, function, refused)
    with pytest.raises(Forbidden, match="refuses access"):
        champion_input(store, run, {"examples": examples})
    assert champion_problem(run) == ""


@pytest.mark.parametrize("leftover", ["nothing", "damaged"])
def test_a_champion_that_the_store_lacks_is_fetched_under_its_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run, examples: str, leftover: str
) -> None:
    digest = model(store, tmp_path / "model")
    copy = shutil.copytree(store.objects.path(digest), tmp_path / "copy")
    if leftover == "nothing":
        store.objects.set_aside(digest)
    else:
        (store.objects.path(digest) / "model.safetensors").write_bytes(b"WEIGHTS")
    fetched = name_champion(monkeypatch, digest, copy)
    assert champion_input(store, run, {"examples": examples}) == {"champion": digest}
    assert fetched == [digest]
    assert store.objects.damage(digest, thorough=True) == []


TEXT = {"task": "causal-lm", "vocab_size": 50}


@pytest.mark.parametrize(
    ("champion", "run_facts", "tokenizers"),
    [
        ({**FACTS, "labels": ["a", "c"]}, FACTS, ("", "")),
        (TEXT, FACTS, ("one", "")),
        ({**TEXT, "vocab_size": 60}, TEXT, ("one", "one")),
        (TEXT, TEXT, ("one", "two")),
    ],
)
def test_a_champion_to_which_the_examples_mean_something_else_fails_the_gate(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    store: Store,
    run: Run,
    champion: dict[str, Any],
    run_facts: dict[str, Any],
    tokenizers: tuple[str, str],
) -> None:
    """Measured on tokens of another tokenizer, it would look bad and let any student pass."""
    name_champion(monkeypatch, model(store, tmp_path / "model", champion, tokenizers[0]))
    examples = described(store, tmp_path / "others", run_facts, tokenizers[1])
    assert champion_input(store, run, {"examples": examples}) == {}
    assert "trained for other labels or tokens" in champion_problem(run)


PLANTED = {**FACTS, "kind": "factory", "factory": "os:system", "kwargs": {"command": "touch ran"}}


@pytest.mark.parametrize("champion", [PLANTED, {**FACTS, "code": {"modeling.py": "import os"}}, {**FACTS, "kind": 3}])
def test_a_champion_that_would_run_other_code_than_this_runs_models_fails_the_gate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run, examples: str, champion: dict[str, Any]
) -> None:
    name_champion(monkeypatch, model(store, tmp_path / "model", champion))
    assert champion_input(store, run, {"examples": examples}) == {}
    assert champion_problem(run).startswith("the champion ") or "does not describe a model" in champion_problem(run)


LARGER = {**FACTS, "image": {"size": 16, "channels": 1}}


def test_a_champion_of_another_image_size_comes_with_the_records_that_its_images_are_made_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run
) -> None:
    digest, examples = model(store, tmp_path / "model", LARGER), described(store, tmp_path / "others", FACTS)
    name_champion(monkeypatch, digest)
    manifest = store.objects.manifest(examples)
    assert manifest is not None
    records = manifest.inputs["records"]
    assert champion_input(store, run, {"examples": examples}) == {"champion": digest, "records": records}
    assert champion_problem(run) == ""
    assert records in run.uses


def test_a_champion_of_another_image_size_fails_the_gate_where_its_images_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run
) -> None:
    digest, examples = model(store, tmp_path / "model", LARGER), described(store, tmp_path / "others", FACTS)
    name_champion(monkeypatch, digest)
    manifest = store.objects.manifest(examples)
    assert manifest is not None
    store.objects.set_aside(manifest.inputs["records"])
    assert champion_input(store, run, {"examples": examples}) == {}
    fault = "sees images of 16 x 16 pixels on white, and the records that they are made from are not in"
    assert fault in champion_problem(run)


def test_a_champion_of_the_same_tokenizer_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run
) -> None:
    digest = model(store, tmp_path / "model", TEXT, "one")
    name_champion(monkeypatch, digest)
    examples = described(store, tmp_path / "others", TEXT, "one")
    assert champion_input(store, run, {"examples": examples}) == {"champion": digest}


def test_a_registry_that_cannot_be_asked_fails_the_gate_and_not_the_measuring(
    monkeypatch: pytest.MonkeyPatch, store: Store, run: Run, examples: str
) -> None:
    def silent(uri: str, name: str) -> Champion:
        raise UnderstudyError("https://mlflow.example does not answer")

    monkeypatch.setattr(champions, "champion", silent)
    assert champion_input(store, run, {"examples": examples}) == {}
    assert champion_problem(run) == "https://mlflow.example does not answer"
    monkeypatch.setattr(champions, "champion", lambda uri, name: None)
    champion_input(store, run, {"examples": examples})
    assert champion_problem(run) == ""
