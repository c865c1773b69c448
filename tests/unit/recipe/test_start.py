"""Layers of a teacher as a learner's first weights: whose they are, their node in the graph, and contradictions."""

from typing import Any

import pytest

from tests.unit.recipe.test_learners import LABELS, LOGITS, MODEL, distil_from, problem, recipe, teacher, values
from understudy.graph import nodes
from understudy.recipe import Recipe, Start
from understudy.recipe.file import completed, from_values
from understudy.recipe.learners import in_order, start_of, starts

LAST = {"layers": "last"}


def student(*objectives: dict[str, Any], **start: Any) -> dict[str, Any]:
    """A recipe's student that starts from layers."""
    distill = {"distill": list(objectives)} if objectives else {}
    return {"student": {"model": MODEL, "train": {"steps": 3}, "start": start, **distill}}


def test_the_layers_are_uniform_and_of_the_only_teacher_by_default() -> None:
    for start in ({}, {"teacher": "a"}, {"layers": "uniform"}):
        assert start_of(recipe({"a": teacher()}, **student(**start)), "student") == Start(teacher="a", layers="uniform")
    assert start_of(recipe({"a": teacher()}), "student") is None
    both = recipe({"a": teacher(), "b": teacher()}, **student(distil_from("b"), layers=[2, 4]), gate={"teacher": "a"})
    assert starts(both) == {"student": Start(teacher="b", layers=(2, 4))}


def test_the_teacher_that_gives_layers_need_not_teach() -> None:
    loaded = recipe({"a": teacher(), "b": teacher()}, **student(distil_from("b"), teacher="a"))
    assert loaded.teachers_of("student") == ("b",)
    inputs = {node.name: (node.inputs, node.start, node.teachers) for node in nodes(loaded)}
    assert inputs["distill"] == (("examples", "a", "b"), "a", ("b",))


def test_student_and_control_have_the_same_start_and_it_is_one_input_beside_the_teachers() -> None:
    by_name = {node.name: node for node in nodes(recipe({"a": teacher()}, **student()))}
    assert by_name["control"].inputs == by_name["distill"].inputs == ("examples", "a")
    assert (by_name["control"].start, by_name["control"].teachers) == ("a", ())
    assert (by_name["distill"].start, by_name["distill"].teachers) == ("a", ("a",))


def test_a_later_stage_starts_from_the_one_before() -> None:
    stages = [{"train": {"steps": 2}, "distill": [LOGITS]}, {"train": {"steps": 3}, "distill": [LABELS]}]
    staged = recipe({"a": teacher()}, student={"model": MODEL, "start": LAST, "stages": stages})
    by_name = {node.name: (node.start, node.inputs) for node in nodes(staged) if node.is_student}
    assert by_name == {
        "control-1": ("a", ("examples", "a")),
        "control": ("control-1", ("examples", "control-1")),
        "distill-1": ("a", ("examples", "a")),
        "distill": ("student-1", ("examples", "student-1")),
    }
    assert start_of(staged, "student.stages.0") == Start(teacher="a", layers="last")
    assert start_of(staged, "student.stages.1") is None


def test_a_teacher_comes_after_the_one_that_it_starts_from() -> None:
    chain = recipe({"small": teacher(start={"teacher": "large"}), "large": teacher()}, distil_from("small"))
    assert in_order(chain) == ["large", "small"]
    assert next(node for node in nodes(chain) if node.name == "small").inputs == ("examples", "large")


def test_a_recipe_without_a_start_is_written_as_ever() -> None:
    """Its digest is part of keys and of registered versions."""
    without = recipe({"a": teacher()})
    assert "start" not in without.model_dump(mode="json", by_alias=True)["student"]
    assert "start" not in without.model_dump(mode="json", by_alias=True)["teachers"]["a"]


def test_a_recipe_with_a_start_says_the_same_again() -> None:
    complete = recipe(
        {"a": teacher(), "b": teacher(start={"teacher": "a", "layers": [1]})}, **student(distil_from("b"), **LAST)
    )
    assert completed(complete) == complete
    assert Recipe.model_validate(complete.model_dump(mode="json", by_alias=True)) == complete
    changed = from_values(values({"a": teacher()}), ["student.start.layers=[1, 3]"], "r")
    assert changed.student.start == Start(layers=(1, 3))


PRETRAINED = {"model": {"pretrained": "org/model", "revision": "1" * 40}, "train": {"steps": 1}}
WITHOUT_TYPE = "the model is pretrained, and has its first weights from there; remove it, or give the model a type"
UNNAMED = "the teacher that gives the layers has to be named, unless there is one; give"


@pytest.mark.parametrize(
    ("teachers", "more", "message"),
    [
        ({"a": teacher()}, student(teacher="b"), "student.start.teacher: there is no teacher b; name one of a"),
        ({"a": teacher(), "b": teacher()}, student(), f"student.start.teacher: {UNNAMED} one of a, b"),
        (
            {"a": teacher(start={}), "b": teacher()},
            student(distil_from(["a", "b"]), teacher="a"),
            f"teachers.a.start.teacher: {UNNAMED} one of b",
        ),
        ({"a": teacher(start={})}, {}, f"teachers.a.start.teacher: {UNNAMED} another teacher, which has to be added"),
        (
            {"a": teacher(start={"teacher": "a"})},
            {},
            "teachers.a: a -> a: teachers learn or start from each other in a circle; remove one objective or start",
        ),
        (
            {"a": teacher(distil_from("b")), "b": teacher(start={"teacher": "a"})},
            student(distil_from("a")),
            "teachers.a: a -> b -> a: teachers learn or start from each other in a circle",
        ),
        ({"a": teacher()}, {"student": {**PRETRAINED, "start": {}}}, f"student.start: {WITHOUT_TYPE}"),
        (
            {"a": {**PRETRAINED, "start": {"teacher": "b"}}, "b": teacher()},
            student(distil_from("a")),
            f"teachers.a.start: {WITHOUT_TYPE}",
        ),
        (
            {"a": teacher()},
            {"student": {"model": MODEL, "start": {}, "train": {"steps": 1, "lora": {"modules": ["q"]}}}},
            "student.train.lora: adapts a pretrained model, and one that starts from layers is trained in full; remove",
        ),
        ({"a": teacher()}, student(layers=[0, 2]), "student.start.layers[0]: must be at least 1, got 0"),
        ({"a": teacher()}, student(layers=[]), "student.start.layers"),
        ({"a": teacher()}, student(layers="first"), "student.start.layers: expected uniform or last"),
        ({"a": teacher()}, student(layer="last"), "student.start.layer: unknown key; did you mean layers?"),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_fix(
    teachers: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    assert message in problem(teachers, **more)


def test_layers_are_a_use_of_a_teacher() -> None:
    assert recipe({"a": teacher(), "b": teacher()}, **student(distil_from("b"), teacher="a"))
    assert "teachers.a: nothing learns from it" in problem(
        {"a": teacher(), "b": teacher()}, **student(distil_from("b"))
    )
