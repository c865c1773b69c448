import importlib
from collections.abc import Callable

from understudy.graph import GATE, Kind, node_of, nodes, trainings
from understudy.recipe import Recipe
from understudy.recipe.learners import RESERVED
from understudy.recipe.roles import section_of


def test_the_control_is_a_node_only_if_the_recipe_trains_one(digits: Recipe, change: Callable[..., Recipe]) -> None:
    names = [node.name for node in nodes(change(digits, "student.control=true"))]
    assert "control" in names
    without = change(digits, "student.control=false")
    assert [node.name for node in nodes(without)] == [name for name in names if name != "control"]
    assert all("control" not in node.inputs for node in nodes(without))


def test_every_input_of_a_node_is_the_result_of_one_before_it(digits: Recipe) -> None:
    results: set[str] = set()
    for node in nodes(digits):
        assert set(node.inputs) <= results, node.name
        assert node.role not in results
        results.add(node.role)


def test_no_teacher_can_have_the_name_of_a_node_or_of_its_result(digits: Recipe) -> None:
    named = {word for node in nodes(digits) for word in (node.name, node.role)}
    assert named - RESERVED == set(), "name them in RESERVED of recipe/learners.py"


def test_a_training_has_its_section_and_resources_of_the_recipe(digits: Recipe) -> None:
    for node in trainings(digits):
        assert node.model == section_of(node.role)
        assert node.model in digits.models
        assert node.resources in digits.resources.by_job
    assert {node.role: bool(node.teachers) for node in trainings(digits)} == {
        "teacher": False,
        "control": False,
        "student": True,
    }


def test_a_job_has_resources_and_other_tasks_have_none(digits: Recipe) -> None:
    assert all(bool(node.resources) == node.kind.launches for node in nodes(digits))
    assert all(node.kind.launches for node in nodes(digits) if node.kind.resumes)


def test_a_kind_of_which_there_is_one_node_finds_it(digits: Recipe) -> None:
    assert node_of(digits, GATE).name == "gate"
    assert isinstance(node_of(digits, GATE).kind, Kind)


def test_one_node_decides_and_later_ones_may_need_its_approval(digits: Recipe) -> None:
    decides = [node.kind.decides for node in nodes(digits)]
    assert decides.count(True) == 1
    assert not any(node.kind.needs_approval for node in nodes(digits)[: decides.index(True) + 1])


def test_every_kind_has_the_modules_that_it_names(digits: Recipe) -> None:
    for kind in {node.kind for node in nodes(digits)}:
        assert callable(importlib.import_module(kind.step).step)
        for component in filter(None, (kind.component, kind.labelled_component)):
            assert hasattr(importlib.import_module(component), kind.name), component
