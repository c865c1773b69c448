"""The pipeline of a recipe: a task for each node of its graph, between the first task and one for a rejection.

Each task takes the run, reads the digests of its inputs from the run's folder, and records its result there. The
recipe determines the graph; overrides, seed and fail_when_rejected are the pipeline's parameters. A condition is set on
the task itself: dsl.If would draw a collapsed box, and start another pod for it. KFP skips all tasks after one whose
condition is false, so a condition on the first nodes skips all of them.
"""

import copy
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from kfp import dsl

from understudy.components.rejected.component import rejected
from understudy.components.start.component import start
from understudy.graph import GATE, Node, node_of, nodes
from understudy.recipe import Recipe
from understudy.recipe.tasks import load

REJECTED = "rejected"
"""The decision, and the task that records it; that is no node, and has no result."""
APPROVED = "approved"
OUTPUT = "Output"
Configure = Callable[[Any, bool], None]
"""Configures a task's pod, of a task that launches a job or of one that does not."""


def build(recipe: Recipe, settle: Configure = lambda task, launches: None) -> Any:
    """The recipe's pipeline, as kfp's graph component.

    Args:
        recipe: the recipe.
        settle: configures a task's pod; on one machine there are no pods.
    """
    values = json.dumps(recipe.model_dump(mode="json", by_alias=True))
    names = ",".join(node.name for node in nodes(recipe))

    def configured(task: Any, launches: bool = False) -> Any:
        """Turn off KFP's cache, whose keys do not cover the data behind an address; the step cache replaces it."""
        settle(task, launches)
        return task.set_caching_options(enable_caching=False)

    @dsl.pipeline(name=recipe.name, description=f"Distils {recipe.name} and puts the student up for review")
    def distillation(overrides: str = "", seed: int = recipe.seed, fail_when_rejected: bool = False) -> None:
        job_id = dsl.PIPELINE_JOB_ID_PLACEHOLDER
        parameters = {"overrides": overrides, "seed": seed, "fails": fail_when_rejected}
        begun = configured(start(recipe=values, job_id=job_id, steps=names, **parameters))
        tasks = _tasks(recipe, begun.outputs["run"], configured)
        configured(rejected(run=tasks[node_of(recipe, GATE).name].outputs["run"], fails=fail_when_rejected))

    gate = node_of(recipe, GATE).name
    for node in nodes(recipe):
        if not node.inputs:
            _run_if(distillation.pipeline_spec, node.name, "start", "nothing")
        if node.kind.needs_approval:
            _run_if(distillation.pipeline_spec, node.name, gate, APPROVED)
    _run_if(distillation.pipeline_spec, REJECTED, gate, REJECTED)
    return distillation


def _tasks(recipe: Recipe, run: Any, configured: Callable[[Any, bool], Any]) -> dict[str, Any]:
    """The tasks of the nodes by name. Each comes after its parents, and takes the run from the last of them."""
    tasks: dict[str, Any] = {}
    for node, parents in _parents(recipe).items():
        *earlier, last = [tasks[parent.name] for parent in parents] or [None]
        output = "run" if parents and parents[-1].kind.decides else OUTPUT
        component = _component(node, recipe)
        task = component(run=last.outputs[output] if last else run, node=node.name)
        tasks[node.name] = configured(task.after(*earlier), node.kind.launches)
    return tasks


def _parents(recipe: Recipe) -> Mapping[Node, tuple[Node, ...]]:
    """The nodes that each node comes after, without those that another of them comes after."""
    makers = {node.role: node for node in nodes(recipe)}
    ancestors: dict[Node, set[Node]] = {}
    parents: dict[Node, tuple[Node, ...]] = {}
    for node in nodes(recipe):
        direct = [makers[role] for role in node.inputs]
        earlier = set().union(*(ancestors[parent] for parent in direct))
        ancestors[node] = earlier | set(direct)
        parents[node] = tuple(parent for parent in makers.values() if parent in direct and parent not in earlier)
    return parents


def _component(node: Node, recipe: Recipe) -> Any:
    """The component of a node's kind, with the node's name, which a page shows."""
    module = (load(recipe.task).LABELLED and node.kind.labelled_component) or node.kind.component
    component = getattr(importlib.import_module(module), node.kind.name)
    named = copy.copy(component)
    named.component_spec = copy.copy(component.component_spec)
    named.name = named.component_spec.name = node.name
    return named


def _run_if(pipeline: Any, name: str, producer: str, word: str) -> None:
    """Run a task only if the output `Output` of an earlier task equals a word.

    kfp's SDK sets such a condition only on groups of tasks; KFP's driver evaluates it for any task. The input has the
    SDK's name for it, by which kfp.local looks up the output.

    Args:
        pipeline: the compiled pipeline (PipelineSpec), which is changed.
        name: the task that depends on it.
        producer: the earlier task.
        word: the required output.
    """
    task = pipeline.root.dag.tasks[name]
    channel = f"pipelinechannel--{producer}-{OUTPUT}"
    source = task.inputs.parameters[channel].task_output_parameter
    source.producer_task, source.output_parameter_key = producer, OUTPUT
    string = pipeline.components["comp-start"].output_definitions.parameters[OUTPUT].parameter_type
    pipeline.components[task.component_ref.name].input_definitions.parameters[channel].parameter_type = string
    task.trigger_policy.condition = f"inputs.parameter_values['{channel}'] == '{word}'"
