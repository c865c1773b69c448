"""The pipeline's steps as plain functions: a run and input digests in, an object's digest out.

    start -> ingest -> prepare -> teacher -> distill -> evaluate -> gate -> register
                          |                                |
                          +-----------> control -----------+

The control is there when the recipe asks for one.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.errors import InputError, UnderstudyError
from understudy.launch.kubernetes import task_config
from understudy.recipe import Recipe
from understudy.recipe.file import from_values, split_overrides
from understudy.revision import TRAINING, revision
from understudy.steps import evaluation, training
from understudy.steps.execution import RUN, Result, Step, Work, execute, tracking_uri, watch_over
from understudy.store import Run, Store

HOME = "UNDERSTUDY_HOME"
NAMED = 3  # records that could not be read; the others are in records.json


def graph(recipe: Recipe) -> list[str]:
    """The names of the steps that a recipe's pipeline has."""
    control = ["control"] if recipe.student.control else []
    return ["ingest", "prepare", "teacher", *control, "distill", "evaluate", "gate", "register"]


def open_store() -> Store:
    """The store of this machine or pod."""
    return Store(Path(os.environ.get(HOME, ".understudy")) / "store")


def start(values: dict[str, Any], overrides: str, seed: int, job_id: str, steps: list[str]) -> str:
    """Check the recipe with a run's own values, and make the run's folder.

    Args:
        values: the recipe that the pipeline was compiled from.
        overrides: a.b=value, one a line or separated by semicolons.
        seed: the run's seed, unless the overrides set another.
        job_id: the pipeline run's id where KFP runs it.
        steps: the compiled pipeline's steps.

    Returns:
        The run's id.

    Raises:
        InputError: a value is wrong, or changes which steps there are.
    """
    from understudy.registry.server import public_uri

    store = open_store()
    made = store.run(os.environ[RUN]) if RUN in os.environ else None
    if made:
        recipe = Recipe.model_validate(made.recipe)
    else:
        recipe = from_values(values, [f"seed={seed}", *split_overrides(overrides)], "overrides")
    if graph(recipe) != steps:
        raise InputError(
            f"overrides: they change the pipeline's steps from {', '.join(steps)} to {', '.join(graph(recipe))}; "
            "compile the recipe with them instead"
        )
    if made:
        return made.id
    uri = public_uri(tracking_uri(store))
    return store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), uri, job_id).id


def _data_section(recipe: Recipe, store: Store) -> dict[str, Any]:
    from understudy.data.sources.registry import module_of, source_identity

    data = recipe.data.model_dump(mode="json", exclude={"image": True, "text": True, "source": {"path"}})
    content = source_identity(recipe.data.source, store.fingerprints)
    code = revision((module_of(recipe.data.source),))
    return {"task": recipe.task, "data": data, "content": content, "source_code": code}


def _ingest(work: Work) -> None:
    from understudy.data.ingest import ingest as write_records

    training.expect_jobs(work.recipe, work.run)
    write_records(work.recipe.data, work.recipe.task, work.staged, work.progress)
    work.facts |= json.loads((work.staged / "records.json").read_text())["counts"]


def _shape_section(recipe: Recipe, store: Store) -> dict[str, Any]:
    if recipe.task == "image-classification":
        return {"task": recipe.task, "image": recipe.image.model_dump(mode="json")}
    from understudy.data.tokenizer import files

    text = recipe.text
    content = [store.fingerprints.file(path) for path in files(text.tokenizer)] if text.tokenizer.pretrained else []
    return {"task": recipe.task, "text": text.model_dump(mode="json"), "content": content}


def _prepare(work: Work) -> None:
    from understudy.data.prepare import prepare as write_examples

    training.expect_jobs(work.recipe, work.run)
    write_examples(work.recipe.data, work.recipe.task, work.input("records"), work.staged, work.progress)


STEPS = {
    step.name: step
    for step in (
        Step("ingest", "records", ("understudy.data.ingest",), _data_section, _ingest),
        Step("prepare", "examples", ("understudy.data.prepare",), _shape_section, _prepare),
        Step("teacher", "model", TRAINING, training.teacher_section, training.train_teacher),
        Step("distill", "model", TRAINING, training.distill_section, training.distill),
        Step("control", "model", TRAINING, training.student_section, training.train_control),
        evaluation.EVALUATE,
        evaluation.GATE,
        evaluation.REGISTER,
    )
}


def run_step(name: str, run_id: str, inputs: Mapping[str, str]) -> Result:
    """Execute a step of a run.

    Args:
        name: one of graph().
        run_id: as returned by start().
        inputs: digests by role; an empty one stands for a step that this pipeline does not have.
    """
    store = open_store()
    run: Run = store.run(run_id)
    watch_over(run)
    given = {role: digest for role, digest in inputs.items() if digest}
    if name == "evaluate":
        given |= evaluation.champion_input(store, run, given["examples"])
    world: dict[str, str] = {}
    if name == "gate":
        world = evaluation.gate_world(run)
    if name == "register":
        world = evaluation.register_world(store)
    result = execute(STEPS[name], store, run, given, world)
    if name == "register" and RUN not in os.environ:  # a task of a pipeline that somebody may follow from outside
        evaluation.tell_verdict(run, store)
    return result


def start_component(values: dict[str, Any], overrides: str, seed: int, job_id: str, steps: list[str]) -> str:
    """start() for a pipeline's task."""
    try:
        return start(values, overrides, seed, job_id, steps)
    except UnderstudyError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def component(name: str, run_id: str, task: Mapping[str, Any] | None = None, /, **inputs: str) -> Result:
    """run_step() for a pipeline's task: an error is one message and an exit code instead of a traceback.

    Args:
        name: the step.
        run_id: the run.
        task: what was set on the task, for the job that it launches.
        inputs: digests by role.
    """
    task_config.hand_over(task)
    try:
        return run_step(name, run_id, inputs)
    except UnderstudyError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


@dataclass(frozen=True)
class Summary:
    """What a run came to."""

    run: str
    verdict: dict[str, Any] | None
    measures: dict[str, Any] | None
    registration: dict[str, Any] | None
    notes: list[str]


def summary(store: Store, run: Run) -> Summary:
    """What a run came to, as far as it got."""

    def content(step: str, name: str) -> dict[str, Any] | None:
        state = run.state(step)
        path = store.objects.path(state.digest) / name if state and state.digest else None
        return dict(json.loads(path.read_text())) if path and path.exists() else None

    return Summary(
        run.id,
        content("gate", "verdict.json"),
        content("evaluate", "measures.json"),
        content("register", "registration.json"),
        [*run.notes, *_left_out(content("ingest", "records.json"))],
    )


def _left_out(records: dict[str, Any] | None) -> list[str]:
    """The records that could not be read, in a sentence that names the first of them."""
    skipped = records["skipped"] if records else []
    if not skipped:
        return []
    first = "; ".join(f"{broken['name']} {broken['reason']}" for broken in skipped[:NAMED])
    count = f"{len(skipped)} records" if len(skipped) > 1 else "1 record"
    return [f"{count} left out: {first}{'; ...' if len(skipped) > NAMED else ''}"]
