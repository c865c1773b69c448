"""The parts of a step's key: one test for each, and for each value that is not a part."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.unit.data.sources.rewriting import rewrite_unseen
from understudy.data.sources import digits as digits_data
from understudy.data.sources import python_docs
from understudy.errors import InputError
from understudy.graph import nodes
from understudy.kube import settings
from understudy.launch.kubernetes.rendering import task_config
from understudy.models import pretrained_files
from understudy.recipe import Recipe
from understudy.recipe.file import load
from understudy.recipe.sources import SOURCES
from understudy.revision import TRAINING as TRAINING_MODULES
from understudy.revision import modules_reached
from understudy.steps import identity, steps_of
from understudy.steps.evidence import reported_recipe
from understudy.steps.step import parts
from understudy.store import Store
from understudy.store.files import Fingerprints

Keys = Callable[..., dict[str, str]]
Change = Callable[..., Recipe]
Copied = Callable[[pytest.MonkeyPatch], Path]


def from_on(name: str) -> set[str]:
    """A node of digits, and all that come after it."""
    roles, names = set(), set()
    for node in nodes(load(ROOT / "recipes" / "digits.yaml")):
        if node.name == name or roles & set(node.inputs):
            roles.add(node.role)
            names.add(node.name)
    return names


REGISTER, GATE, EVALUATE = from_on("register"), from_on("gate"), from_on("evaluate")
DISTILL, CONTROL, TEACHER = from_on("distill"), from_on("control"), from_on("teacher")
STUDENT, TRAINING = DISTILL | CONTROL, TEACHER | CONTROL
PREPARE, ALL = from_on("prepare"), from_on("ingest")


def repeated(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in after if before.get(name) != after[name]}


def saved_model(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.validation=0.2", ALL),
        ("data.test=0.3", ALL),
        ("data.on_error=skip", ALL),
        ("data.image.size=16", PREPARE),
        ("data.image.channels=3", PREPARE),
        ("seed=7", TRAINING),
        ("teacher.model.config.num_hidden_layers=3", TEACHER),
        ("teacher.train.epochs=31", TEACHER),
        ("teacher.train.batch_size=32", TEACHER),
        ("teacher.train.optimizer.learning_rate=0.002", TEACHER),
        ("teacher.train.precision=bf16", TEACHER),
        ("student.model.config.num_hidden_layers=3", STUDENT),
        ("student.train.epochs=41", STUDENT),
        ("student.train.gradient_accumulation_steps=2", STUDENT),
        ("student.train.schedule.warmup=41", STUDENT),
        ("student.distill.logits.temperature=5", DISTILL),
        ("student.distill.logits.weight=0.8", DISTILL),
        ("student.distill.logits.weight={start: 0.7, end: 0.1}", DISTILL),
        ("evaluate.batch_size=32", EVALUATE),
        ("evaluate.latency.repeats=51", EVALUATE),
        ("evaluate.metrics=[accuracy]", EVALUATE),
        ("gate.metric=nll", EVALUATE),
        ("gate.margin=0.06", GATE),
        ("gate.confidence=0.9", GATE),
        ("gate.max_latency_ratio=null", GATE),
        ("register.model=other", REGISTER),
        ("register.control=true", GATE),
        ("register.experiment=other", REGISTER),
        ("resources.teacher.device=cuda", TEACHER),
        ("resources.distill.device=cuda", STUDENT),
        ("resources.teacher.threads=1", set()),
        ("resources.distill.threads=1", set()),
        ("teacher.train.checkpoint_every=7", set()),
        ("student.train.checkpoint_every=7", set()),
        ("student.train.guard={}", STUDENT),
    ],
)
def test_a_changed_value_repeats_what_depends_on_it(
    keys: Keys, digits: Recipe, change: Change, override: str, expected: set[str]
) -> None:
    assert repeated(keys(digits), keys(change(digits, override))) == expected


def test_the_start_counts_and_the_model_that_gives_its_layers(
    keys: Keys, digits: Recipe, change: Change, store: Store
) -> None:
    """Without one, keys are as before there was a choice."""
    for step in steps_of(digits).values():
        assert "start" not in step.section(digits, store)
    assert "start" not in json.dumps(reported_recipe(digits))
    started = change(digits, "student.start={}")
    assert repeated(keys(digits), keys(started)) == STUDENT
    assert repeated(keys(started), keys(change(started, "student.start.layers=last"))) == STUDENT
    assert (
        repeated(keys(started), keys(change(started, "student.start.teacher=teacher"))) == GATE
    )  # the report shows it
    assert repeated(keys(started), keys(change(started, "teacher.train.epochs=31"))) == TEACHER | CONTROL


def test_weights_of_teachers_count_and_equal_ones_are_not_written(
    keys: Keys, digits: Recipe, change: Change, store: Store
) -> None:
    """Without weights, keys are as before there was a choice."""
    for step in steps_of(digits).values():
        assert "teacher_weights" not in json.dumps(step.section(digits, store))
    assert "teacher_weights" not in json.dumps(reported_recipe(digits))
    pair = dict.fromkeys(("first", "second"), digits.all_teachers["teacher"])
    both = digits.model_copy(update={"teacher": None, "teachers": pair})
    numbers = "student.distill.logits.teacher_weights={first: 2, second: 1}"
    assert keys(both) == keys(change(both, "student.distill.logits.teacher_weights=equal"))
    assert repeated(keys(both), keys(change(both, numbers))) == DISTILL
    assert repeated(keys(change(both, numbers)), keys(change(both, numbers.replace("2", "3")))) == DISTILL


def test_a_guard_goes_back_to_checkpoints_and_where_they_are_decides_its_numbers(
    keys: Keys, digits: Recipe, change: Change
) -> None:
    guarded = change(digits, "student.train.guard={}")
    assert repeated(keys(guarded), keys(change(guarded, "student.train.checkpoint_every=7"))) == STUDENT


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.text.sequence_length=32", PREPARE),
        ("data.text.packing=documents", PREPARE),
        ("data.text.tokenizer.vocab_size=512", PREPARE),
        ("student.distill.logits.temperature=5", DISTILL),
        ("gate.metric=accuracy", EVALUATE),
        ("evaluate.stride=16", EVALUATE),
    ],
)
def test_a_changed_value_of_a_text_recipe_does_so_too(
    keys: Keys, pydoc: Recipe, change: Change, override: str, expected: set[str]
) -> None:
    assert repeated(keys(pydoc), keys(change(pydoc, override))) == expected


def test_how_documents_are_packed_is_said_where_it_is_another_way_than_ever(
    pydoc: Recipe, change: Change, store: Store
) -> None:
    """So recipes from before there was a choice keep their keys."""
    prepare, packed = steps_of(pydoc)["prepare"].section, change(pydoc, "data.text.packing=documents")
    assert "packing" not in json.dumps([prepare(pydoc, store), reported_recipe(pydoc)])
    assert prepare(packed, store)["text"] == {**prepare(pydoc, store)["text"], "packing": "documents"}
    assert reported_recipe(packed)["data"]["text"]["packing"] == "documents"


@pytest.mark.parametrize(
    ("job", "section", "expected"), [("teacher", "teacher", TEACHER), ("distill", "student", STUDENT)]
)
def test_the_number_of_processes_and_their_strategy_count(
    keys: Keys, digits: Recipe, change: Change, job: str, section: str, expected: set[str]
) -> None:
    copied = change(digits, f"{section}.train.strategy=ddp")
    two = change(copied, f"resources.{job}.processes=2")
    sharded = change(two, f"{section}.train.strategy=fsdp")
    assert repeated(keys(digits), keys(copied)) == expected
    assert repeated(keys(copied), keys(two)) == expected
    assert repeated(keys(two), keys(sharded)) == expected


def test_auto_counts_as_the_device_that_it_finds(
    monkeypatch: pytest.MonkeyPatch, keys: Keys, digits: Recipe, change: Change
) -> None:
    named = change(digits, "resources.teacher.device=cuda", "resources.distill.device=cuda")
    expected = keys(named)
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: "nvidia" in str(path) or exists(path))
    assert keys(digits) == expected


def test_what_is_set_on_a_task_has_no_say_but_for_its_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: Keys, digits: Recipe, change: Change
) -> None:
    """Where a job runs decides nothing; that GPUs compute does, and auto finds them on the task too."""
    monkeypatch.setenv(settings.LAUNCHER, "pytorchjob")
    monkeypatch.setattr(
        "understudy.launch.kubernetes.platform.cluster_settings", lambda: settings.Cluster(image="i", claim="c")
    )
    monkeypatch.setenv(task_config.VARIABLE, "{}")
    before = keys(digits)
    named = keys(change(digits, "resources.teacher.device=cuda", "resources.distill.device=cuda"))
    somewhere = {"node_selector": {"a": "b"}, "env": [{"name": "A", "value": "1"}], "tolerations": [{"key": "spot"}]}
    task_config.hand_over({**somewhere, "resources": {"limits": {"memory": "1Gi"}}})
    assert keys(digits) == before
    task_config.hand_over({**somewhere, "resources": {"limits": {"nvidia.com/gpu": "1"}}})
    assert keys(digits) == named
    assert repeated(before, named) == TRAINING


def test_the_same_recipe_without_a_control_repeats_no_training(keys: Keys, digits: Recipe, change: Change) -> None:
    assert repeated(keys(digits), keys(change(digits, "student.control=false"))) == EVALUATE


@pytest.mark.parametrize("kind", ["image-folder", "parquet", "text-files"])
def test_a_source_file_changed_in_place_with_its_size_and_time_repeats_everything(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    keys: Keys,
    digits: Recipe,
    pydoc: Recipe,
    change: Change,
    kind: str,
) -> None:
    monkeypatch.setattr(Fingerprints, "_SETTLED", 0)  # let it remember files as young as these
    root = tmp_path / "source"
    name = {"image-folder": "a/1.png", "parquet": "a/1.parquet", "text-files": "a/1.txt"}[kind]
    (root / "a").mkdir(parents=True)
    (root / name).write_bytes(b"some content")
    recipe = change(pydoc if kind == "text-files" else digits, f"data.source={{type: {kind}, path: {root}}}")
    before = keys(recipe)
    assert keys(recipe) == before
    os.utime(root / name)
    assert keys(recipe) == before
    rewrite_unseen(root / name, b"same content")
    changed = keys(recipe)
    assert repeated(before, changed) == ALL
    shutil.copy(root / name, root / "a" / f"2.{name.partition('.')[2]}")
    assert repeated(changed, keys(recipe)) == ALL


def test_what_lies_beside_the_source_files_has_no_say(
    tmp_path: Path, keys: Keys, pydoc: Recipe, change: Change
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "1.txt").write_text("text")
    recipe = change(pydoc, f"data.source={{type: text-files, path: {tmp_path / 'source'}}}")
    before = keys(recipe)
    (tmp_path / "source" / "notes.md").write_text("not of the glob")
    assert keys(recipe) == before


def test_the_same_files_in_another_place_are_not_read_or_trained_on_again(
    tmp_path: Path, keys: Keys, pydoc: Recipe, change: Change
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text("text")
    first, second = (
        change(pydoc, f"data.source={{type: text-files, path: {tmp_path / name}}}") for name in ("one", "two")
    )
    assert repeated(keys(first), keys(second)) == GATE  # the report shows the path


def test_built_in_sources_count_by_content(
    monkeypatch: pytest.MonkeyPatch, keys: Keys, digits: Recipe, pydoc: Recipe
) -> None:
    before = keys(digits), keys(pydoc)
    for module in (digits_data, python_docs):
        changed = replace(module.SOURCE, digest=lambda section, fingerprints: "another content")
        monkeypatch.setattr(module, "SOURCE", changed)
    assert repeated(before[0], keys(digits)) == ALL
    assert repeated(before[1], keys(pydoc)) == ALL


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("pyarrow", ALL),
        ("tokenizers", EVALUATE),
        ("pillow", ALL),
        ("torch", TRAINING),
        ("transformers", TRAINING),
        ("safetensors", TRAINING),
        ("matplotlib", GATE),
        ("mlflow", REGISTER),
        ("typer", set()),
        ("kfp", set()),
        ("pytest", set()),
    ],
)
def test_a_librarys_version_repeats_the_steps_whose_numbers_it_decides(
    monkeypatch: pytest.MonkeyPatch, keys: Keys, digits: Recipe, library: str, expected: set[str]
) -> None:
    before = keys(digits)
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "99" if name.lower() == library else version(name))
    assert repeated(before, keys(digits)) == expected


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("data/ingest.py", ALL),
        ("data/split.py", ALL),
        ("data/records.py", ALL),
        ("data/sources/digits.py", ALL),
        ("data/prepare.py", PREPARE),
        ("data/images.py", ALL),
        ("data/image_arrays.py", PREPARE),
        ("data/tokenizer.py", set()),
        ("tasks/image_classification.py", set()),
        ("tasks/causal_lm.py", set()),
        ("data/loader.py", TRAINING),
        ("objectives/objective.py", TRAINING),
        ("objectives/labels.py", TRAINING),
        ("objectives/logits.py", DISTILL),
        ("objectives/hidden_states.py", set()),
        ("objectives/distributions.py", set()),
        ("objectives/reverse_kl.py", set()),
        ("train/loop.py", TRAINING),
        ("parallel/apply.py", TRAINING),
        ("models/build.py", TRAINING),
        ("evaluate/measure.py", EVALUATE),
        ("evaluate/latency.py", EVALUATE),
        ("evaluate/gate.py", GATE),
        ("evaluate/report.py", GATE),
        ("registry/register.py", REGISTER),
        ("models/pretrained.py", set()),
        ("cli/run.py", set()),
        ("store/objects.py", set()),
        ("steps/execution.py", set()),
        ("steps/job_spec.py", set()),
        ("recipe/schema.py", set()),
    ],
)
def test_a_changed_line_repeats_the_steps_that_run_it(
    monkeypatch: pytest.MonkeyPatch, copied: Copied, keys: Keys, digits: Recipe, module: str, expected: set[str]
) -> None:
    before = keys(digits)
    root = copied(monkeypatch)
    (root / module).write_text(f"{(root / module).read_text()}\n_CHANGED = 1\n")
    assert repeated(before, keys(digits)) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("def check", ALL),
        ("def prepare", PREPARE),
        ("def open_split", TRAINING),
        ("def wrap", TRAINING),
        ("def targets", EVALUATE),
        ("def test_split", EVALUATE),
        ("def shown", GATE),
        ("class Predictor", REGISTER),
        ("def losses", REGISTER),
    ],
)
def test_a_changed_function_of_the_task_repeats_the_steps_that_call_it(
    monkeypatch: pytest.MonkeyPatch, copied: Copied, keys: Keys, digits: Recipe, part: str, expected: set[str]
) -> None:
    before = keys(digits)
    path = copied(monkeypatch) / "tasks" / "image_classification.py"
    head, separator, body = path.read_text().partition(part)
    assert separator
    path.write_text(f"{head}{part}{body.replace('    return ', '    _CHANGED = 1; return ', 1)}")
    assert repeated(before, keys(digits)) == expected


def test_a_library_that_only_another_tasks_examples_need_has_no_say(
    monkeypatch: pytest.MonkeyPatch, keys: Keys, pydoc: Recipe
) -> None:
    before = keys(pydoc)
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "99" if name.lower() == "tokenizers" else version(name))
    assert repeated(before, keys(pydoc)) == PREPARE


SOURCE_USERS = {
    "digits": {"digits"},
    "image_folder": {"image-folder"},
    "parquet": {"parquet"},
    "arrow_rows": {"parquet", "datasets"},
    "datasets": {"datasets"},
    "built_dataset": {"datasets"},
    "dataset_hub": {"datasets"},
    "dataset_parts": {"datasets"},
    "dataset_splits": {"datasets"},
    "dataset_values": {"datasets"},
    "saved_dataset": {"datasets"},
    "csv": {"csv"},
    "jsonl": {"jsonl"},
    "json_objects": {"jsonl"},
    "conversations": {"parquet", "jsonl", "datasets"},
    "text_files": {"text-files"},
    "python_docs": {"python-docs"},
    "python_questions": set(),
    "files": {"image-folder", "parquet", "csv", "jsonl", "datasets", "text-files"},
    "columns": {"parquet", "csv", "jsonl", "datasets"},
    "registry": {
        "digits",
        "image-folder",
        "parquet",
        "csv",
        "jsonl",
        "datasets",
        "text-files",
        "python-docs",
        "python-questions",
    },
}


def test_every_source_is_among_those_whose_changes_are_looked_at() -> None:
    assert {path.rpartition(".")[2] for path in SOURCES.values()} <= SOURCE_USERS.keys()
    assert SOURCE_USERS["registry"] == SOURCES.keys()


@pytest.mark.parametrize("module", SOURCE_USERS)
def test_a_changed_line_of_a_source_repeats_only_the_recipes_that_use_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    copied: Copied,
    keys: Keys,
    digits: Recipe,
    pydoc: Recipe,
    change: Change,
    module: str,
) -> None:
    (tmp_path / "source").mkdir()
    for name in ("1.png", "1.parquet", "1.csv", "1.jsonl", "1.txt"):
        (tmp_path / "source" / "a").mkdir(exist_ok=True)
        (tmp_path / "source" / "a" / name).write_bytes(b"content")
    recipes = {"digits": digits, "python-docs": pydoc}
    texts, images = ("csv", "jsonl", "datasets", "text-files"), ("image-folder", "parquet")
    for recipe, kind in [*((digits, kind) for kind in images), *((pydoc, kind) for kind in texts)]:
        recipes[kind] = change(recipe, f"data.source={{type: {kind}, path: {tmp_path / 'source'}}}")
    before = {kind: keys(recipe) for kind, recipe in recipes.items()}
    root = copied(monkeypatch)
    path = root / "data" / "sources" / f"{module}.py"
    path.write_text(f"{path.read_text()}\n_CHANGED = 1\n")
    repeated_steps = {kind: repeated(before[kind], keys(recipe)) for kind, recipe in recipes.items()}
    assert repeated_steps == {kind: ALL if kind in SOURCE_USERS[module] else set() for kind in recipes}


@pytest.mark.parametrize(
    ("module", "before", "after", "expected"),
    [
        ("steps/evaluate.py", "CONTROL, CHAMPION)", "CHAMPION, CONTROL)", EVALUATE),
        ("steps/evidence.py", "for role in (RECORDS, EXAMPLES,", "for role in (EXAMPLES,", GATE | REGISTER),
        ("jobs/trainings.py", "seed=recipe.seed", "seed=recipe.seed + 1", set()),
    ],
)
def test_a_changed_line_of_a_steps_own_function_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
    copied: Copied,
    keys: Keys,
    digits: Recipe,
    module: str,
    before: str,
    after: str,
    expected: set[str],
) -> None:
    before_change = keys(digits)
    root = copied(monkeypatch)
    text = (root / module).read_text()
    assert before in text
    (root / module).write_text(text.replace(before, after))
    assert repeated(before_change, keys(digits)) == expected


def test_no_message_outside_of_training_repeats_a_training_or_the_data(
    monkeypatch: pytest.MonkeyPatch, copied: Copied, keys: Keys, digits: Recipe
) -> None:
    before = keys(digits)
    root = copied(monkeypatch)
    assert keys(digits) == before
    for package in ("kube", "jobs", "agent", "launch", "runs", "registry", "cli", "steps"):
        for module in (root / package).rglob("*.py"):
            module.write_text(f"{module.read_text()}\n_CHANGED = 1\n")
    assert repeated(before, keys(digits)) == REGISTER


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("execution", "not started: a stop was requested"),
        ("job", "run again to resume"),
        ("watch", "resuming from step"),
        ("fetching", "fetching {"),
        ("signals", "HEARTBEAT_INTERVAL = 3600"),
        ("pace", "SAY = 10"),
        ("step", ": running: "),
        ("identity", "is PYTHONPATH set?"),
        ("champion", "the champion was trained for other labels"),
        ("graph", " has no result of "),
        ("start", "compile the recipe with them instead"),
        ("summary", "left out: "),
    ],
)
def test_a_changed_message_of_a_step_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch, copied: Copied, keys: Keys, digits: Recipe, module: str, message: str
) -> None:
    before = keys(digits)
    root = copied(monkeypatch)
    path = root / "steps" / f"{module}.py"
    assert message in path.read_text()
    path.write_text(path.read_text().replace(message, f"{message}9"))
    assert repeated(before, keys(digits)) == set()


def test_a_training_reaches_nothing_that_launches_or_watches_it() -> None:
    above = ("kube", "jobs", "agent", "launch", "runs", "registry", "cli", "steps")
    reached = modules_reached(TRAINING_MODULES)
    assert "understudy.train.loop" in reached
    assert {name for name in reached if name.split(".")[1] in above} == set()


def test_a_changed_line_of_what_fetches_models_repeats_only_those_that_are_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: Keys, digits: Recipe, change: Change
) -> None:
    model = f"model={{pretrained: {saved_model(tmp_path / 'model')}}}"
    teacher, student = change(digits, f"teacher.{model}"), change(digits, f"student.{model}")
    before = keys(teacher), keys(student)
    revision = identity.revision
    changed = {"source": "changed"}

    def fetching_changed(modules: tuple[str, ...], **options: Any) -> Any:
        return changed if modules == ("understudy.models.pretrained",) else revision(modules, **options)

    monkeypatch.setattr(identity, "revision", fetching_changed)
    assert repeated(before[0], keys(teacher)) == TEACHER
    assert repeated(before[1], keys(student)) == STUDENT


def test_a_champion_repeats_what_compares_the_student_with_it(keys: Keys, digits: Recipe) -> None:
    none, first, second = (
        keys(digits, inputs={"evaluate": inputs}) for inputs in ({}, {"champion": "a" * 64}, {"champion": "b" * 64})
    )
    assert repeated(none, first) == repeated(first, second) == EVALUATE


def test_a_champion_that_cannot_be_measured_repeats_the_gate(keys: Keys, digits: Recipe) -> None:
    assert repeated(keys(digits), keys(digits, world={"gate": {"champion_problem": "no answer"}})) == GATE


def test_how_many_were_judged_on_the_split_repeats_the_gate(keys: Keys, digits: Recipe) -> None:
    first, tenth = (keys(digits, world={"gate": {"judged": number}}) for number in ("1", "10"))
    assert repeated(first, tenth) == GATE


def test_earlier_rejections_repeat_the_gate(keys: Keys, digits: Recipe) -> None:
    assert repeated(keys(digits), keys(digits, world={"gate": {"rejections": "[]"}})) == GATE


def test_another_tracking_server_repeats_the_registration_alone(keys: Keys, digits: Recipe) -> None:
    first, second = (keys(digits, world={"register": {"server": server}}) for server in ("here", "there"))
    assert repeated(first, second) == REGISTER


@pytest.mark.parametrize("section", ["teacher", "student"])
def test_a_pretrained_folder_counts_by_content(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: Keys, digits: Recipe, change: Change, section: str
) -> None:
    monkeypatch.setattr(Fingerprints, "_SETTLED", 0)
    folder = saved_model(tmp_path / "model")
    recipe = change(digits, f"{section}.model={{pretrained: {folder}}}")
    before = keys(recipe)
    assert keys(recipe) == before
    rewrite_unseen(folder / "model.safetensors", b"WEIGHTS")
    assert repeated(before, keys(recipe)) == {"teacher": TEACHER, "student": STUDENT}[section]


def test_a_hub_id_counts_by_the_commit_that_it_points_to(
    monkeypatch: pytest.MonkeyPatch, keys: Keys, digits: Recipe, change: Change
) -> None:
    requests: list[Any] = []
    commit = "a" * 40

    def hub_file(repository: str, name: str, at: str | None, key_path: str) -> Path:
        requests.append((repository, name, at, key_path))
        return Path(f"cache/snapshots/{commit}/{name}")

    monkeypatch.setattr(pretrained_files, "hub_file", hub_file)
    recipe = change(digits, "teacher.model={pretrained: owner/name, revision: v1}")
    before = keys(recipe)
    assert set(requests) == {("owner/name", "config.json", "v1", "teacher.model.pretrained")}
    assert keys(recipe) == before
    commit = "b" * 40
    assert repeated(before, keys(recipe)) == TEACHER


def test_a_commit_is_taken_at_its_word_without_asking_the_hub(
    monkeypatch: pytest.MonkeyPatch, keys: Keys, digits: Recipe, change: Change
) -> None:
    monkeypatch.setattr(pretrained_files, "hub_file", lambda *arguments: pytest.fail(f"asked for {arguments}"))
    first, second = (
        change(digits, f"teacher.model={{pretrained: owner/name, revision: {commit * 40}}}") for commit in "ab"
    )
    assert repeated(keys(first), keys(second)) == TEACHER


def test_a_pretrained_tokenizer_counts_by_content(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: Keys, pydoc: Recipe, change: Change
) -> None:
    monkeypatch.setattr(Fingerprints, "_SETTLED", 0)
    (tmp_path / "tokenizer.json").write_text("one")
    recipe = change(pydoc, f"data.text.tokenizer.pretrained={tmp_path}")
    before = keys(recipe)
    rewrite_unseen(tmp_path / "tokenizer.json", b"two")
    assert repeated(before, keys(recipe)) == PREPARE


def test_a_factory_counts_by_the_source_of_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: Keys, digits: Recipe, change: Change
) -> None:
    package = tmp_path / "nets_of_a_user"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = change(digits, "student.model={factory: 'nets_of_a_user.net:make'}")
    before = keys(recipe)
    assert keys(recipe) == before
    assert repeated(before, keys(change(recipe, "student.model.kwargs={width: 3}"))) == STUDENT
    (package / "layers.py").write_text("")
    assert repeated(before, keys(recipe)) == STUDENT


def test_a_factory_that_is_nowhere_is_refused(keys: Keys, digits: Recipe, change: Change) -> None:
    with pytest.raises(InputError, match=r"student\.model\.factory: there is no module nowhere.*PYTHONPATH"):
        keys(change(digits, "student.model={factory: 'nowhere.net:make'}"))


def test_a_teacher_that_is_used_as_it_is_does_not_depend_on_the_seed_or_the_machine(
    tmp_path: Path, keys: Keys, digits: Recipe, change: Change
) -> None:
    recipe = change(
        digits, f"teacher={{model: {{pretrained: {saved_model(tmp_path / 'model')}}}}}", "student.control=false"
    )
    moved = change(recipe, "seed=7", "resources.teacher={device: cuda}")
    assert repeated(keys(recipe), keys(moved)) == DISTILL


def test_a_keys_parts_are_plain_data_and_hold_no_path_of_a_source(
    tmp_path: Path, digits: Recipe, change: Change, store: Store
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"x")
    recipe = change(digits, f"data.source={{type: image-folder, path: {tmp_path}}}")
    assert str(tmp_path) not in json.dumps(parts(steps_of(recipe)["ingest"], recipe, store, {}, {}))


def test_where_a_pretrained_folder_lies_has_no_say(tmp_path: Path, keys: Keys, digits: Recipe, change: Change) -> None:
    original = saved_model(tmp_path / "here")
    moved = tmp_path / "there"
    shutil.copytree(original, moved)
    keys_of_teacher = [
        keys(change(digits, f"teacher.model={{pretrained: {folder}}}"))["teacher"] for folder in (original, moved)
    ]
    assert keys_of_teacher[0] == keys_of_teacher[1]


def test_the_code_of_a_factory_has_a_say_in_what_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, digits: Recipe, change: Change
) -> None:
    (tmp_path / "measured_net.py").write_text("import torch")
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = change(digits, "student.model={factory: 'measured_net:make'}")
    before = steps_of(recipe)["evaluate"].section(recipe, store)
    (tmp_path / "measured_net.py").write_text("import torch  # another forward")
    assert steps_of(recipe)["evaluate"].section(recipe, store) != before
