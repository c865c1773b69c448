import subprocess
import sys

import pytest

from understudy.errors import InputError
from understudy.recipe import Degrees, Recipe
from understudy.recipe.file import completed, from_values
from understudy.recipe.objectives import OBJECTIVES, Requirements, WeightSchedule, load
from understudy.recipe.tasks import TASKS, default_objectives

MODEL = {"type": "gpt2", "config": {}}


def values(task, **student):
    learner = {"model": MODEL, "train": {"steps": 1}}
    data = {"source": {"type": "parquet", "path": "here"}}
    return {"name": "here", "task": task, "data": data, "teacher": learner, "student": {**learner, **student}}


@pytest.mark.parametrize("task", TASKS)
def test_each_task_has_objectives_of_its_own_which_the_complete_recipe_names(task):
    recipe = Recipe.model_validate(values(task))
    assert recipe.objectives == completed(recipe).student.distill == default_objectives(task)
    assert sum(objective.weight for objective in recipe.objectives) == pytest.approx(1)
    recipe = from_values(values(task, distill=[{"type": "logits"}]), (), "here")
    assert recipe.objectives == recipe.student.distill
    assert len(recipe.objectives) == 1


@pytest.mark.parametrize("task", TASKS)
def test_an_override_changes_one_number_of_the_task_s_own(task):
    labels, logits = from_values(values(task), ["student.distill.logits.temperature=7"], "here").objectives
    assert labels == default_objectives(task)[0]
    assert logits == default_objectives(task)[1].model_copy(update={"temperature": 7.0})


def test_a_control_that_is_not_trained_cannot_be_registered():
    settings = {**values("causal-lm", control=False), "register": {"control": True}}
    with pytest.raises(InputError, match=r"register\.control: no control is trained; set student\.control to true"):
        from_values(settings, (), "here")


def test_a_control_s_name_is_told_apart_once():
    recipe = Recipe.model_validate({**values("causal-lm"), "register": {"model": "m", "control": True}})
    assert recipe.model_name == completed(recipe).model_name == "m-control"
    assert completed(completed(recipe)).model_name == "m-control"


def test_a_recipe_with_every_objective_is_checked_without_torch():
    script = (
        "import sys; from pathlib import Path; from understudy.recipe.file import load, schema; "
        "load(Path('recipes/digits.yaml')); schema(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_that_compares_more_than_logits_refuses_stages(name):
    """In a pipeline the last stage has the logits, and no other outputs."""
    requirements = load(name).requirements
    assert bool(requirements.extras) == ("pp" in requirements.refuses)


def test_a_feature_is_refused_where_it_is_used():
    requirements = Requirements(
        refuses={"tp": "layers are split", "packing": "documents are packed", "mixup": "labels are mixed"}
    )
    batch = {"batch_size": 16, "parts": 1}
    assert list(requirements.conflicts(Degrees(dp_shard=2), packed=False, mixed=False, **batch)) == []
    assert list(requirements.conflicts(Degrees(tp=2), packed=False, mixed=False, **batch)) == ["layers are split"]
    assert list(requirements.conflicts(None, packed=True, mixed=False, **batch)) == ["documents are packed"]
    assert list(requirements.conflicts(None, packed=False, mixed=True, **batch)) == ["labels are mixed"]


@pytest.mark.parametrize(
    ("degrees", "parts", "count"),
    [
        (None, 1, None),
        (None, 8, 2),
        (Degrees(dp_replicate=2, tp=2), 2, None),
        (Degrees(dp_replicate=2, dp_shard=2), 2, 2),
        (Degrees(dp_shard=16), 1, 1),
    ],
)
def test_a_micro_batch_of_too_few_examples_to_compare_is_refused(degrees, parts, count):
    reasons = list(Requirements(examples=3).conflicts(degrees, packed=False, mixed=False, batch_size=16, parts=parts))
    assert len(reasons) == (count is not None)
    assert all(
        f"compares at least 3 examples of a micro-batch with each other, and each has {count}" in why for why in reasons
    )


@pytest.mark.parametrize(
    ("weight", "problem"),
    [
        (-1, "weight: must be at least 0, got -1"),
        ({"start": 1}, "weight.end: required, but missing"),
        ({"start": 1, "end": -1}, "weight.end: must be at least 0"),
        ({"start": 1, "end": 0, "steps": 0}, "weight.steps: must be greater than 0"),
        ({"start": 1, "end": 0, "form": "step"}, "weight.form: "),
        ({"start": 0.5, "end": 0.5}, "weight: start and end are both 0.5; give the number instead"),
    ],
)
def test_a_weight_that_is_none_has_one_message(weight, problem):
    with pytest.raises(InputError) as caught:
        from_values(values("causal-lm", distill=[{"type": "labels"}, {"type": "logits", "weight": weight}]), (), "here")
    [line] = str(caught.value).splitlines()
    assert f"student.distill[1].{problem}" in line


@pytest.mark.parametrize(("place", "weight"), [("start", {"start": 0, "end": 1}), ("end", {"start": 1, "end": 0})])
def test_a_step_without_a_loss_is_refused(place, weight):
    distill = [{"type": "labels", "weight": 0}, {"type": "logits", "weight": weight}]
    with pytest.raises(InputError, match=rf"student\.distill: all weights are 0 at the {place}; give one objective a"):
        from_values(values("causal-lm", distill=distill), (), "here")
    distill[0]["weight"] = 0.1
    chosen = from_values(values("causal-lm", distill=distill), ["student.distill.logits.weight.steps=7"], "here")
    assert chosen.objectives[1].weight == WeightSchedule(**weight, steps=7)
    dumped = chosen.objectives[1].model_dump(mode="json")
    assert type(chosen.objectives[1]).model_validate(dumped) == chosen.objectives[1]
