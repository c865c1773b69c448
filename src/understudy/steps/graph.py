"""The steps of a recipe's nodes."""

import importlib

from understudy.errors import UnderstudyError
from understudy.graph import Kind, Node, node_of, nodes
from understudy.recipe import Recipe
from understudy.steps.step import Step
from understudy.store import Run, StepState


def step_of(node: Node) -> Step:
    """A node's step."""
    step: Step = importlib.import_module(node.kind.step).step(node)
    return step


def steps_of(recipe: Recipe) -> dict[str, Step]:
    """The steps of a recipe's pipeline by name, in order."""
    return {node.name: step_of(node) for node in nodes(recipe)}


def step_names(recipe: Recipe) -> list[str]:
    """The names of the steps of a recipe's pipeline, in order."""
    return [node.name for node in nodes(recipe)]


def state_of(run: Run, kind: Kind) -> StepState | None:
    """The state in a run of the step of a kind of which it has one; None before it has begun."""
    return run.state(node_of(Recipe.model_validate(run.recipe), kind).name)


def inputs_of(step: Step, run: Run) -> dict[str, str]:
    """The digests of a step's inputs from the run's other steps, by role.

    Raises:
        UnderstudyError: one of them has no result in this run.
    """
    names = {node.role: node.name for node in nodes(Recipe.model_validate(run.recipe))}
    digests = {}
    for role in step.inputs:
        state = run.state(names[role])
        if state is None or not state.digest:
            raise UnderstudyError(f"{step.name}: run {run.id} has no result of {names[role]}; run that one first")
        digests[role] = state.digest
    return digests
