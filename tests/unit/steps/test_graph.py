import subprocess
import sys
from collections.abc import Callable

from understudy.recipe import Recipe
from understudy.steps.graph import STEPS, step_names


def test_the_control_is_a_step_where_the_recipe_asks_for_one(digits: Recipe, change: Callable[..., Recipe]) -> None:
    assert step_names(change(digits, "student.control=true")) == list(STEPS)
    assert set(STEPS) - set(step_names(change(digits, "student.control=false"))) == {"control"}


def test_every_input_of_a_step_is_made_by_one_before_it() -> None:
    """Two steps make a student's model; its role says which."""
    roles = {
        "ingest": "records",
        "prepare": "examples",
        "distill": "student",
        "evaluate": "measures",
        "gate": "verdict",
    }
    made: set[str] = set()
    for name, step in STEPS.items():
        assert set(step.inputs) <= made, name
        made.add(roles.get(name, name))


def test_asking_whether_there_is_work_imports_nothing_heavy() -> None:
    """A run that finds every step done ends in seconds; importing torch alone takes as many."""
    code = "import sys, understudy.steps; print([n for n in ('torch', 'transformers', 'mlflow') if n in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
