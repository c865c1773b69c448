"""Which trainings can read a teacher's cached logits, and the nodes that cache them."""

from typing import Any

import pytest

from tests import ROOT
from understudy.errors import InputError
from understudy.graph import LOGITS, nodes, trainings
from understudy.recipe import Recipe
from understudy.recipe.file import from_values, load
from understudy.recipe.logit_rules import temperature_of

DIGITS = ROOT / "recipes" / "digits.yaml"
CACHE = "teacher.logits={type: top_k, k: 5}"


def digits(*overrides: str) -> Recipe:
    return load(DIGITS, overrides=list(overrides))


def test_a_node_caches_the_logits_that_the_student_reads_instead_of_its_teacher() -> None:
    recipe = digits(CACHE)
    (node,) = (node for node in nodes(recipe) if node.kind is LOGITS)
    assert (node.name, node.inputs, node.teachers) == ("logits", ("examples", "teacher"), ("teacher",))
    student = trainings(recipe)[-1]
    assert student.inputs == ("examples", "logits")
    assert (student.teachers, student.logits) == (("teacher",), ("logits",))
    names = [node.name for node in nodes(recipe)]
    assert names.index("teacher") < names.index("logits") < names.index("distill")


def test_a_recipe_without_a_cache_has_the_same_graph_and_dump_as_before() -> None:
    recipe = digits()
    assert LOGITS not in {node.kind for node in nodes(recipe)}
    assert "logits" not in recipe.model_dump(mode="json", by_alias=True)["teacher"]
    assert all(node.logits == () for node in trainings(recipe))


def several(**wide: Any) -> dict[str, Any]:
    """Two teachers, the student learns from their mean, in two stages."""
    model = {"type": "resnet", "config": {"embedding_size": 8, "hidden_sizes": [8], "depths": [1]}}
    learner = {"model": model, "train": {"epochs": 1}}
    stage = {"train": {"epochs": 1}, "distill": [{"type": "logits", "temperature": 3.0}]}
    return {
        "name": "two",
        "task": "image-classification",
        "data": {"source": {"type": "digits"}, "image": {"size": 8, "channels": 1}},
        "teachers": {"wide": {**learner, **wide}, "deep": learner},
        "student": {"model": model, "stages": [stage, stage]},
    }


def test_stages_share_the_logits_of_one_teacher_beside_another_in_memory() -> None:
    recipe = from_values(several(logits={"type": "nucleus"}), [], "r.yaml")
    assert [node.name for node in nodes(recipe) if node.kind is LOGITS] == ["logits-wide"]
    students = [node for node in trainings(recipe) if node.is_student and not node.is_control]
    assert [node.logits for node in students] == [("logits-wide", "")] * 2
    assert all(set(node.inputs) >= {"logits-wide", "deep"} and "wide" not in node.inputs for node in students)
    assert temperature_of(recipe, "wide") == 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["student.train.augment={flip: true}"],
            r"student\.train\.augment: changes images at random, and the logits of teacher are cached for unchanged",
        ),
        (["student.train.strategy=auto"], r"student\.train\.strategy: auto plans for a teacher in memory"),
        (
            ["student.distill=[{type: hidden_states}, {type: logits}]"],
            r"student\.distill\[0\]: compares hidden states, and the teacher's logits alone are cached",
        ),
        (
            ["student.distill=[{type: logits_mse}]"],
            r"student\.distill\[0\]: compares the logits of all classes, and most are not cached",
        ),
        (
            ["student.distill=[{type: jsd}]", "teacher.logits={type: sampled}"],
            r"student\.distill\[0\]: is no mean over the teacher's distribution, so sampled classes would bias it",
        ),
        (
            ["student.distill=[{type: logits, temperature: 2}, {type: jsd, temperature: 3}]"],
            r"teacher\.logits: objectives soften its logits at temperatures 2 and 3, and one is cached",
        ),
        (["teacher.logits={type: nucleus, mass: 1.5}"], r"teacher\.logits"),
        (["teacher.logits={type: top_k, k: 0}"], r"teacher\.logits"),
        (["teacher.logits={type: sampled, draws: 5000}"], r"teacher\.logits"),
        (["student.teacher_precision=nf4"], r"student\.teacher_precision: no teacher is in memory"),
    ],
)
def test_a_training_that_cannot_read_them_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        digits(CACHE, *overrides)


def test_a_pipeline_of_stages_needs_the_teacher() -> None:
    with pytest.raises(InputError, match=r"strategy: pp gives a process a part of each example"):
        digits(
            CACHE,
            "student.train.strategy={pp: 2}",
            "student.train.gradient_accumulation_steps=2",
            "resources.distill.processes=2",
        )


def test_sampled_logits_fit_the_objective_that_is_a_mean_over_the_distribution() -> None:
    assert digits("teacher.logits={type: sampled, draws: 12}").logit_cache("teacher")


def test_a_teacher_cannot_be_named_as_a_cache() -> None:
    values = several()
    values["teachers"]["logits-x"] = values["teachers"].pop("deep")
    with pytest.raises(InputError, match=r"teachers\.logits-x: names a step or result of every run"):
        from_values(values, [], "r.yaml")
