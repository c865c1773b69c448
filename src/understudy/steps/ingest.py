"""The source -> records, split by content."""

import json
from collections.abc import Mapping
from functools import partial

from understudy.errors import printable
from understudy.graph import RECORDS, Node
from understudy.launch.platform import platform
from understudy.recipe import Recipe
from understudy.revision import revision
from understudy.steps.identity import task_code
from understudy.steps.step import Step, Work
from understudy.store import Store


def _section(node: Node, recipe: Recipe, store: Store) -> Mapping[str, object]:
    from understudy.data.sources.registry import module_of, source_identity

    data_set = recipe.data_of(node.data)
    data = data_set.model_dump(mode="json", exclude={"image": True, "text": True, "chat": True, "source": {"path"}})
    content = source_identity(data_set.source, store.fingerprints)
    code = revision((module_of(data_set.source),))  # loaded by name: this step's imports do not reach it
    checks = task_code(recipe.task, ("check", "FIELDS", "LABELLED"))
    return {"task": recipe.task, "data": data, "content": content, "source_code": code, "task_code": checks}


def _ingest(node: Node, work: Work) -> None:
    from understudy.data.ingest import ingest, ingest_beside

    platform().prepare(work.run)
    recipe = work.recipe
    if node.data:
        data_set, section = recipe.data_sets[node.data], f"data_sets.{node.data}"
        notes = ingest_beside(data_set, section, recipe.task, work.input(RECORDS), work.staged, work.progress)
    else:
        notes = ingest(recipe.data, recipe.task, work.staged, work.progress)
    for note in notes:
        work.run.note(printable(note))
    work.facts |= json.loads((work.staged / "records.json").read_text())["counts"]


def step(node: Node) -> Step:
    """The step of a node of the kind `ingest`."""
    return Step(
        name=node.name,
        role=node.role,
        kind="records",
        work=partial(_ingest, node),
        functions=(_ingest,),
        modules=("understudy.data.ingest",),
        section=partial(_section, node),
        inputs=node.inputs,
    )
