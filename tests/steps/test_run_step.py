"""What the registry adds to a step's inputs: the champion, why it cannot be measured, and the server."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from understudy import steps
from understudy.errors import UnderstudyError
from understudy.recipe import Recipe
from understudy.registry import champion as champions
from understudy.registry import verdict
from understudy.registry.champion import Champion
from understudy.steps import HOME, run_step
from understudy.steps.evaluation import champion_input, gate_world, register_world
from understudy.steps.execution import RUN
from understudy.store import Manifest, Run, StepState, Store
from understudy.store.files import write_json

URI = "MLFLOW_TRACKING_URI"


@pytest.fixture
def run(store: Store, digits: Recipe) -> Run:
    return store.create_run(digits.name, digits.model_dump(mode="json", by_alias=True), "")


FACTS = {"task": "image-classification", "labels": ["a", "b"], "image": {"size": 8, "channels": 1}}


@pytest.fixture
def examples(store: Store, tmp_path: Path) -> str:
    return described(store, tmp_path / "examples", FACTS)


def described(store: Store, folder: Path, facts: dict[str, Any], tokenizer: str = "") -> str:
    """The digest of examples in the store."""
    folder.mkdir()
    (folder / "examples.json").write_text(json.dumps({**facts, "counts": {"test": 3}}))
    if tokenizer:
        (folder / "tokenizer.json").write_text(tokenizer)
    return store.objects.publish(folder, "examples")


def model(store: Store, folder: Path, facts: dict[str, Any] = FACTS, tokenizer: str = "") -> str:
    """The digest of a model in the store."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "understudy.json").write_text(json.dumps({**facts, "kind": "transformers"}))
    if tokenizer:
        (folder / "tokenizer.json").write_text(tokenizer)
    return store.objects.publish(folder, "model", {"examples": "e" * 64}, {"loss": 0.5})


def name_champion(monkeypatch: pytest.MonkeyPatch, digest: str, copy: Path | None = None) -> list[str]:
    """Let the registry have a champion, to be downloaded from a folder; the list grows with each download."""
    fetched: list[str] = []

    def fetch(uri: str, champion: Champion, folder: Path) -> Manifest:
        assert copy is not None, "downloaded what is in the store"
        fetched.append(champion.digest)
        for name in ("model.safetensors", "understudy.json"):
            shutil.copy(copy / name, folder)
        return Manifest("model", (), {"examples": "e" * 64}, {"loss": 0.5})

    monkeypatch.setattr(champions, "champion", lambda uri, name: Champion(name, "3", digest, "models:/digits/3"))
    monkeypatch.setattr(champions, "fetch", fetch)
    return fetched


def test_without_a_champion_there_is_nothing_to_compare_with(
    monkeypatch: pytest.MonkeyPatch, store: Store, run: Run, examples: str
) -> None:
    monkeypatch.setattr(champions, "champion", lambda uri, name: None)
    assert champion_input(store, run, examples) == {}
    assert gate_world(run) == {}


def test_a_champion_in_the_store_is_an_input_and_in_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run, examples: str
) -> None:
    digest = model(store, tmp_path / "model")
    name_champion(monkeypatch, digest)
    assert champion_input(store, run, examples) == {"champion": digest}
    assert gate_world(run) == {}
    assert digest in run.uses


@pytest.mark.parametrize("left", ["nothing", "damaged"])
def test_a_champion_that_the_store_lacks_is_fetched_under_its_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run, examples: str, left: str
) -> None:
    digest = model(store, tmp_path / "model")
    copy = shutil.copytree(store.objects.path(digest), tmp_path / "copy")
    if left == "nothing":
        store.objects.set_aside(digest)
    else:
        (store.objects.path(digest) / "model.safetensors").write_bytes(b"WEIGHTS")
    fetched = name_champion(monkeypatch, digest, copy)
    assert champion_input(store, run, examples) == {"champion": digest}
    assert fetched == [digest]
    assert store.objects.damage(digest, thorough=True) == []


TEXT = {"task": "causal-lm", "vocab_size": 50}


@pytest.mark.parametrize(
    ("champion", "run_facts", "tokenizers"),
    [
        ({**FACTS, "labels": ["a", "c"]}, FACTS, ("", "")),
        ({**FACTS, "image": {"size": 16, "channels": 1}}, FACTS, ("", "")),
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
    assert champion_input(store, run, examples) == {}
    assert "trained for other labels, image sizes or tokens" in gate_world(run)["champion_problem"]


def test_a_champion_of_the_same_tokenizer_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run
) -> None:
    digest = model(store, tmp_path / "model", TEXT, "one")
    name_champion(monkeypatch, digest)
    assert champion_input(store, run, described(store, tmp_path / "others", TEXT, "one")) == {"champion": digest}


def test_a_registry_that_cannot_be_asked_fails_the_gate_and_not_the_measuring(
    monkeypatch: pytest.MonkeyPatch, store: Store, run: Run, examples: str
) -> None:
    def silent(uri: str, name: str) -> Champion:
        raise UnderstudyError("https://mlflow.example does not answer")

    monkeypatch.setattr(champions, "champion", silent)
    assert champion_input(store, run, examples) == {}
    assert gate_world(run) == {"champion_problem": "https://mlflow.example does not answer"}
    monkeypatch.setattr(champions, "champion", lambda uri, name: None)
    champion_input(store, run, examples)
    assert gate_world(run) == {}


def test_a_server_counts_as_the_same_whoever_asks_it(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    worlds = []
    for uri in ("https://ann:secret@mlflow.example", "https://mlflow.example/", "https://other.example"):
        monkeypatch.setenv(URI, uri)
        worlds.append(register_world(store))
    assert worlds[0] == worlds[1] != worlds[2]
    assert "secret" not in str(worlds)


def test_the_local_server_counts_by_its_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store) -> None:
    monkeypatch.delenv(URI, raising=False)
    assert register_world(store) == {"server": f"sqlite:///{tmp_path}/mlflow.db"}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, store: Store) -> list[tuple[Any, ...]]:
    """Step, inputs and world of every step that would be executed."""
    found: list[tuple[Any, ...]] = []

    def execute(step: steps.Step, at: Store, run: Run, inputs: Mapping[str, str], world: Mapping[str, str]) -> str:
        found.append((step.name, dict(inputs), dict(world)))
        return "result"

    monkeypatch.setenv(HOME, str(store.folder.parent))
    monkeypatch.setattr(steps, "execute", execute)
    monkeypatch.setattr(steps, "watch_over", lambda run: None)
    return found


def test_an_input_that_the_pipeline_does_not_have_is_left_out(calls: list[tuple[Any, ...]], run: Run) -> None:
    run_step("distill", run.id, {"examples": "e", "teacher": "t", "control": ""})
    assert calls == [("distill", {"examples": "e", "teacher": "t"}, {})]


def test_the_champion_is_measured_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    store: Store,
    calls: list[tuple[Any, ...]],
    run: Run,
    examples: str,
) -> None:
    digest = model(store, tmp_path / "model")
    name_champion(monkeypatch, digest)
    run_step("evaluate", run.id, {"student": "s", "examples": examples})
    assert calls == [("evaluate", {"student": "s", "examples": examples, "champion": digest}, {})]


def test_the_gate_knows_why_the_champion_was_not_measured(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[Any, ...]], run: Run, examples: str
) -> None:
    def silent(uri: str, name: str) -> Champion:
        raise UnderstudyError("no answer")

    monkeypatch.setattr(champions, "champion", silent)
    run_step("evaluate", run.id, {"student": "s", "examples": examples})
    run_step("gate", run.id, {"measures": "m"})
    assert calls[1] == ("gate", {"measures": "m"}, {"champion_problem": "no answer"})


def test_the_registration_knows_the_server(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[Any, ...]], run: Run
) -> None:
    monkeypatch.setenv(URI, "https://mlflow.example")
    run_step("register", run.id, {"student": "s"})
    assert calls == [("register", {"student": "s"}, {"server": "https://mlflow.example"})]


@pytest.mark.parametrize(("state", "kept"), [("reused", ["version 3"]), ("done", [])])
def test_a_reused_registration_of_a_pipeline_s_task_is_told_to_mlflow(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    store: Store,
    calls: list[tuple[Any, ...]],
    run: Run,
    state: Literal["reused", "done"],
    kept: list[str],
) -> None:
    staged = tmp_path / "registration"
    staged.mkdir()
    write_json(staged / "registration.json", {"parent_run_id": "p", "version": "3", "name": "n", "url": "u"})
    run.record(StepState("register", state, digest=store.objects.publish(staged, "registration", {})))
    told: list[str] = []
    monkeypatch.setattr(verdict, "keep_verdict", lambda *given: told.append(f"version {given[-1].version}"))
    run_step("register", run.id, {"student": "s"})
    assert told == kept
    monkeypatch.setenv(RUN, run.id)  # the process that drives the pipeline has the verdict itself
    run_step("register", run.id, {"student": "s"})
    assert told == kept
