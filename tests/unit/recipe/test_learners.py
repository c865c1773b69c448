"""Several teachers, teachers of teachers, and stages: their order, names and contradictions."""

from typing import Any

import pytest

from understudy.errors import InputError
from understudy.graph import nodes, trainings
from understudy.recipe import Recipe, Train
from understudy.recipe.file import completed, from_values
from understudy.recipe.learners import in_order, with_train

MODEL = {"factory": "package.module:build"}
LABELS, LOGITS = {"type": "labels"}, {"type": "logits"}
BOTH: dict[str, Any] = {name: {"model": MODEL, "train": {"steps": 2}} for name in "ab"}


def teacher(*objectives: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A teacher that is trained; with objectives, by teachers of its own."""
    distill = {"distill": list(objectives)} if objectives else {}
    return {"model": MODEL, "train": {"steps": 2}, **distill, **more}


def values(teachers: dict[str, Any], *objectives: dict[str, Any], **more: Any) -> dict[str, Any]:
    distill = {"distill": list(objectives)} if objectives else {}
    return {
        "name": "several",
        "task": "image-classification",
        "data": {"source": {"type": "digits"}},
        "teachers": teachers,
        "student": {"model": MODEL, "train": {"steps": 3}, **distill},
        **more,
    }


def recipe(*args: Any, **more: Any) -> Recipe:
    return from_values(values(*args, **more), (), "r")


def problem(*args: Any, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        recipe(*args, **more)
    return str(caught.value)


def distil_from(name: str | list[str], kind: str = "logits") -> dict[str, Any]:
    return {"type": kind, "teacher": name}


def weigh(weights: Any, kind: str = "logits", **more: Any) -> dict[str, Any]:
    return {"type": kind, "teacher_weights": weights, **more}


def test_a_student_learns_from_all_teachers_unless_an_objective_names_its_own() -> None:
    everyone = recipe({"wide": teacher(), "deep": teacher()})
    assert everyone.teachers_of("student") == ("wide", "deep")
    named = recipe({"wide": teacher(), "deep": teacher()}, LABELS, distil_from("deep"), gate={"teacher": "wide"})
    assert named.teachers_of("student") == ("deep",)
    both = recipe(
        {"wide": teacher(), "deep": teacher(), "odd": teacher()}, distil_from(["deep", "wide"]), gate={"teacher": "odd"}
    )
    assert both.teachers_of("student") == ("wide", "deep")


@pytest.mark.parametrize("kind", ["logits", "reverse_kl", "jsd", "skewed_kl", "total_variation", "decoupled_kd"])
def test_teachers_are_weighed_by_a_rule_or_by_numbers(kind: str) -> None:
    for weights in ("equal", "confidence", "label", {"a": 1, "b": 0}, {"b": 0.5, "a": 3}):
        chosen = recipe(BOTH, LABELS, weigh(weights, kind)).objectives[1]
        assert chosen.model_dump(mode="json").get("teacher_weights", "equal") == weights
        assert type(chosen).model_validate(chosen.model_dump(mode="json")) == chosen


def test_each_teacher_comes_after_its_own() -> None:
    chain = recipe(
        {"small": teacher(LABELS, distil_from("middle")), "middle": teacher(distil_from("large")), "large": teacher()},
        distil_from("small"),
    )
    assert in_order(chain) == ["large", "middle", "small"]
    assert [node.name for node in trainings(chain)] == ["large", "middle", "small", "control", "distill"]
    inputs = {node.name: node.inputs for node in nodes(chain)}
    assert inputs["middle"] == ("examples", "large")
    assert inputs["distill"] == ("examples", "small")
    assert inputs["evaluate"] == ("examples", "small", "middle", "large", "control", "student")


def test_a_stage_starts_from_the_model_of_the_one_before() -> None:
    stages = [{"train": {"steps": 2}, "distill": [LOGITS]}, {"train": {"steps": 3}, "distill": [LABELS]}]
    staged = recipe({"wide": teacher()}, student={"model": MODEL, "stages": stages})
    by_name = {node.name: (node.role, node.inputs, node.training) for node in nodes(staged) if node.is_student}
    assert by_name == {
        "control-1": ("control-1", ("examples",), "student.stages.0"),
        "control": ("control", ("examples", "control-1"), "student.stages.1"),
        "distill-1": ("student-1", ("examples", "wide"), "student.stages.0"),
        "distill": ("student", ("examples", "student-1"), "student.stages.1"),
    }


def test_a_stage_without_objectives_has_the_tasks() -> None:
    staged = recipe({"wide": teacher()}, student={"model": MODEL, "stages": [{"train": {"steps": 2}}]})
    assert staged.student.stages is not None
    assert [objective.type for objective in staged.student.stages[0].distill or ()] == ["labels", "logits"]


@pytest.mark.parametrize(
    ("teachers", "objectives", "more", "message"),
    [
        (
            {"a": teacher(distil_from("b")), "b": teacher(distil_from("a"))},
            [distil_from("a")],
            {},
            "teachers.a: a -> b -> a: teachers learn from each other in a circle; remove one objective",
        ),
        ({"a": teacher(distil_from("a"))}, [distil_from("a")], {}, "teachers.a: a -> a: teachers learn"),
        (
            {
                "a": teacher(distil_from("b"), distil_from("d")),
                "b": teacher(),
                "c": teacher(),
                "d": teacher(distil_from("e")),
                "e": teacher(distil_from("a"), distil_from("c")),
            },
            [distil_from("a")],
            {},
            "teachers.a: a -> d -> e -> a: teachers learn from each other in a circle; remove one objective",
        ),
        ({"a": teacher()}, [distil_from("b")], {}, "student.distill[0].teacher: there is no teacher b; name one of a"),
        (
            {"a": teacher()},
            [distil_from(["a", "c"])],
            {},
            "student.distill[0].teacher: there is no teacher c; name one of a",
        ),
        (
            {"a": teacher(LOGITS), "b": teacher()},
            [distil_from("a")],
            {},
            "teachers.a.distill[0].teacher: a teacher's own teacher has to be named; give one of b",
        ),
        (
            {"a": teacher(), "b": teacher()},
            [distil_from("a")],
            {},
            "teachers.b: nothing learns from it; name it in an objective",
        ),
        (
            {"a": teacher()},
            [distil_from([])],
            {},
            "student.distill[0].teacher: expected text or a list of 2 or more, got []",
        ),
        (
            {"a": teacher()},
            [distil_from(["a", "a"])],
            {},
            "student.distill[0].teacher: names a teacher twice; name each once",
        ),
        (
            {"a": teacher()},
            [distil_from("")],
            {},
            'student.distill[0].teacher: expected text of 1 or more characters or a list, got ""',
        ),
        ({"gate": teacher()}, [], {}, "teachers.gate: names a step or result of every run; take another name"),
        *(
            (
                {f"{prefix}-more": teacher()},
                [],
                {"data_sets": {"more": {"source": {"type": "digits"}}}},
                f"teachers.{prefix}-more: names a step or result of every run; take another name",
            )
            for prefix in ("ingest", "prepare", "records", "examples")
        ),
        ({"a-1": teacher()}, [], {}, "teachers.a-1: names a step or result of every run; take another name"),
        ({"a": teacher()}, [], {"gate": {"teacher": "b"}}, "gate.teacher: there is no teacher b; name one of a"),
        (
            {"a": teacher()},
            [],
            {"resources": {"teachers": {"b": {"nodes": 2}}}},
            "resources.teachers.b: there is no such teacher; name one of a",
        ),
        (
            {"a": teacher(), "b": teacher()},
            [{"type": "hidden_states"}],
            {},
            "student.distill[0].teacher: hidden_states compares with one teacher, and there are a, b; name one",
        ),
        (
            {"a": teacher()},
            [],
            {"student": {"model": MODEL, "stages": [{"train": {"steps": 1}, "distill": [LABELS]}]}},
            "student.stages: no stage learns from a teacher",
        ),
        (
            {"a": teacher()},
            [],
            {"student": {"model": MODEL, "train": {"steps": 1}, "stages": [{"train": {"steps": 1}}]}},
            "student: give either stages, or one train with its distill; move these into a stage",
        ),
        ({"a": teacher()}, [], {"student": {"model": MODEL}}, "student: a student needs a section train, or stages"),
        (
            BOTH,
            [LABELS, weigh({"a": 1, "c": 2})],
            {},
            "student.distill[1].teacher_weights: the objective has no teacher c; name a, b",
        ),
        (BOTH, [weigh({"a": 1})], {}, "student.distill[0].teacher_weights: b has no weight; give it one, which may"),
        (BOTH, [weigh({"a": 0, "b": 0})], {}, "student.distill[0].teacher_weights: all weights are 0; give a teacher"),
        (BOTH, [weigh({"a": 1, "b": -1})], {}, "student.distill[0].teacher_weights"),
        (BOTH, [weigh({"a": 1, "b": float("inf")})], {}, "student.distill[0].teacher_weights"),
        (BOTH, [weigh("entropy")], {}, "student.distill[0].teacher_weights"),
        (
            BOTH,
            [LOGITS, weigh("label", teacher="a")],
            {},
            "student.distill[1].teacher_weights: weighs several teachers, and the objective has one, a; remove it",
        ),
        (
            BOTH,
            [LOGITS, weigh("label", "cosine", teacher="b")],
            {},
            "student.distill[1].teacher_weights: unknown",
        ),
        (
            {**BOTH, "b": {"model": MODEL, "train": {"steps": 2}, "logits": {"type": "sampled"}}},
            [weigh("confidence")],
            {},
            "student.distill[0].teacher_weights: confidence weighs teachers by probabilities that a sample does not "
            "show, and the logits of b are cached as one; cache the top_k",
        ),
        (
            BOTH,
            [weigh("confidence", "logits_mse")],
            {},
            "student.distill[0].teacher_weights: confidence weighs distributions by their probabilities, and",
        ),
        (
            BOTH,
            [],
            {
                "student": {
                    "model": MODEL,
                    "train": {"steps": 1, "augment": {"mixup": 0.4}},
                    "distill": [weigh("label")],
                }
            },
            "student.distill[0].teacher_weights: label compares teachers with the label, and a mixed image has two",
        ),
        ({"a": teacher()}, [], {"teacher": teacher()}, "give either teacher, or several in teachers"),
        ({}, [], {}, "give a teacher, or several in teachers"),
        ({"A b": teacher()}, [], {}, "teachers.A b"),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_fix(
    teachers: dict[str, Any], objectives: list[dict[str, Any]], more: dict[str, Any], message: str
) -> None:
    assert message in problem(teachers, *objectives, **more)


def test_another_strategy_reaches_the_training_at_its_path() -> None:
    stages = [{"train": {"steps": 2}}, {"train": {"steps": 3}}]
    staged = recipe({"wide": teacher()}, student={"model": MODEL, "stages": stages})
    for path in ("teachers.wide", "student.stages.1"):
        changed = with_train(staged, path, Train(steps=7))
        assert {name: stage.train.steps for name, stage in changed.trainings.items()} == {
            **{name: stage.train.steps for name, stage in staged.trainings.items()},
            path: 7,
        }


def test_a_completed_recipe_says_the_same_again() -> None:
    complete = recipe(
        {"wide": teacher(), "deep": teacher(distil_from("wide"))}, LABELS, distil_from("deep"), gate={"teacher": "wide"}
    )
    assert completed(complete) == complete
    assert Recipe.model_validate(complete.model_dump(mode="json", by_alias=True)) == complete


def test_an_override_of_steps_replaces_the_epochs_of_a_named_teacher_and_of_a_stage() -> None:
    written = values(
        {"wide": teacher(train={"epochs": 3})}, student={"model": MODEL, "stages": [{"train": {"epochs": 2}}]}
    )
    changed = from_values(written, ["teachers.wide.train.steps=5", "student.stages.0.train.steps=4"], "r")
    assert {path: stage.train.steps for path, stage in changed.trainings.items()} == {
        "teachers.wide": 5,
        "student.stages.0": 4,
    }
