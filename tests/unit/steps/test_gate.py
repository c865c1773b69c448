from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from understudy.evaluate.gate import Circumstances
from understudy.graph import GATE, node_of
from understudy.recipe import Recipe
from understudy.steps.champion import FILE
from understudy.steps.gate import _circumstances, step
from understudy.steps.step import Work
from understudy.store import Run, StepState, Store
from understudy.store.files import write_json

Change = Callable[..., Recipe]
SPLIT = {"train.labels.npy": b"train", "test.labels.npy": b"labels", "test.images.npy": b"images"}


def examples(store: Store, files: Mapping[str, bytes] = SPLIT) -> str:
    staged = store.folder / "work" / "staged"
    staged.mkdir()
    for name, content in files.items():
        (staged / name).write_bytes(content)
    return store.objects.publish(staged, "examples")


def facts(
    store: Store, run: Run, examples_digest: str, student: str = "a" * 64, control: str = "c" * 64
) -> Mapping[str, str]:
    gate = step(node_of(Recipe.model_validate(run.recipe), GATE))
    return gate.outside(run, store, {"examples": examples_digest, "student": student, "control": control}).facts


def new_run(store: Store, recipe: Recipe) -> Run:
    return store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), "sqlite:///here.db")


def test_why_a_champion_was_not_measured_decides_the_verdict(store: Store, digits: Recipe) -> None:
    run, digest = new_run(store, digits), examples(store)
    assert facts(store, run, digest) == {"judged": "1"}
    write_json(run.folder / FILE, {"problem": ""})
    assert facts(store, run, digest) == {"judged": "1"}
    write_json(run.folder / FILE, {"problem": "no answer"})
    assert facts(store, run, digest) == {"judged": "1", "champion_problem": "no answer"}


@pytest.mark.parametrize(
    ("changed", "counts"), [("train.labels.npy", True), ("test.labels.npy", False), ("test.images.npy", False)]
)
def test_students_are_counted_by_the_test_examples_whatever_they_were_trained_on(
    store: Store, digits: Recipe, changed: str, counts: bool
) -> None:
    run, first, second = new_run(store, digits), examples(store), examples(store, {**SPLIT, changed: b"other"})
    assert first != second
    assert facts(store, run, first, "a" * 64)["judged"] == "1"
    assert facts(store, run, second, "b" * 64)["judged"] == ("2" if counts else "1")
    assert facts(store, run, first, "a" * 64)["judged"] == "1"


def test_each_registered_model_has_its_own_count_and_a_control_s_is_another(
    store: Store, digits: Recipe, change: Change
) -> None:
    digest = examples(store)
    for override in ("register.model=one", "register.model=two", "register.control=true"):
        assert facts(store, new_run(store, change(digits, override)), digest)["judged"] == "1"
    assert facts(store, new_run(store, digits), digest)["judged"] == "1"
    assert facts(store, new_run(store, digits), digest, student="b" * 64)["judged"] == "2"


def test_what_the_data_s_card_says_decides_the_report(
    store: Store, digits: Recipe, change: Change, tmp_path: Path
) -> None:
    (tmp_path / "pets").mkdir()
    recipe = change(digits, f"data.source={{type: image-folder, path: {tmp_path / 'pets'}}}")
    run, digest = new_run(store, recipe), examples(store)
    assert facts(store, run, digest) == {"judged": "1"}
    (tmp_path / "pets" / "README.md").write_text("---\nlicense: mit\n---\n")
    assert facts(store, run, digest) == {"judged": "1", "card": '{"licence": "mit"}'}


def test_the_verdict_is_told_of_copies_in_the_test_split(tmp_path: Path, digits: Recipe) -> None:
    write_json(tmp_path / "records.json", {"counts": {"train": 9, "test": 984}, "distinct": {"train": 9, "test": 20}})
    assert circumstances(tmp_path, digits, {}).copies.startswith("Of 984 test images 20 differ.")


def circumstances(folder: Path, recipe: Recipe, world: Mapping[str, str]) -> Circumstances:
    """The circumstances of a verdict, whose inputs are all in one folder."""
    work = SimpleNamespace(recipe=recipe, world={"judged": "1", **world}, input=lambda role: folder)
    return _circumstances(cast(Work, work), {}, "teacher")


def judge(store: Store, recipe: Recipe, examples_digest: str, approved: bool) -> Mapping[str, str]:
    """Judge a student as a run does, and give the facts that the verdict depends on."""
    run, student = new_run(store, recipe), "a" * 64
    told = facts(store, run, examples_digest, student)
    staged = store.folder / "work" / "staged"
    staged.mkdir()
    write_json(staged / "verdict.json", {"approved": approved, "margin": recipe.gate.margin})
    inputs = {"examples": examples_digest, "student": student}
    verdict = store.objects.publish(staged, "verdict", inputs=inputs)
    run.record(StepState("gate", "done", digest=verdict))
    step(node_of(recipe, GATE)).follow(run, store)
    return told


def test_a_verdict_by_looser_rules_names_the_rejection_and_repeats_as_it_was(
    store: Store, digits: Recipe, change: Change, tmp_path: Path
) -> None:
    digest, looser = examples(store), change(digits, "gate.margin=0.08")
    write_json(tmp_path / "records.json", {"counts": {"test": 9}})
    rejected = judge(store, digits, digest, approved=False)
    assert rejected == {"judged": "1"}
    approved = judge(store, looser, digest, approved=True)
    assert circumstances(tmp_path, looser, approved).rejections == (
        f"This student was rejected before under other rules of the gate: margin {digits.gate.margin:g} (now 0.08)."
    )
    assert judge(store, digits, digest, approved=False) == rejected
    assert judge(store, looser, digest, approved=True) == approved
    other_metric = change(digits, "gate.metric=nll")
    assert circumstances(tmp_path, other_metric, judge(store, other_metric, digest, approved=True)).rejections == (
        "This student was rejected before under other rules of the gate: metric accuracy (now nll)."
    )


def test_an_approval_by_stricter_rules_is_no_rejection(store: Store, digits: Recipe, change: Change) -> None:
    digest = examples(store)
    assert judge(store, digits, digest, approved=True) == {"judged": "1"}
    assert judge(store, change(digits, "gate.margin=0.08"), digest, approved=True) == {"judged": "1"}
