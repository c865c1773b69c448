import subprocess
import sys

import pytest

from understudy.errors import UnderstudyError
from understudy.graph import GATE, nodes
from understudy.recipe import Recipe
from understudy.steps import state_of, steps_of
from understudy.steps.graph import inputs_of
from understudy.store import Run, StepState


def test_every_node_has_a_step_of_its_name_role_and_inputs(digits: Recipe) -> None:
    for node, (name, step) in zip(nodes(digits), steps_of(digits).items(), strict=True):
        assert (name, step.name, step.role, step.inputs) == (node.name, node.name, node.role, node.inputs)


def test_a_steps_inputs_are_the_results_of_the_runs_earlier_steps(digits: Recipe, run: Run) -> None:
    prepare = steps_of(digits)["prepare"]
    with pytest.raises(UnderstudyError, match="has no result of ingest; run that one first"):
        inputs_of(prepare, run)
    run.record(StepState("ingest", "done", digest="r"))
    assert inputs_of(prepare, run) == {"records": "r"}


def test_the_state_of_a_kind_is_that_of_its_node(run: Run) -> None:
    assert state_of(run, GATE) is None
    run.record(StepState("gate", "running"))
    assert state_of(run, GATE) == run.state("gate")


def test_looking_up_steps_imports_nothing_heavy() -> None:
    """A run whose steps are all cached ends in seconds; importing torch alone takes as many."""
    code = (
        "import sys; from understudy.steps import steps_of; from understudy.recipe.file import load; "
        "from pathlib import Path; steps_of(load(Path('recipes/digits.yaml'))); "
        "print([name for name in ('torch', 'transformers', 'mlflow') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
