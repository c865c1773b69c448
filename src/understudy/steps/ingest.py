"""The source -> records, split by content."""

import json
from collections.abc import Mapping

from understudy.errors import printable
from understudy.graph import Node
from understudy.launch.platform import platform
from understudy.recipe import Recipe
from understudy.revision import revision
from understudy.steps.identity import task_code
from understudy.steps.step import Step, Work
from understudy.store import Store


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    from understudy.data.sources.registry import module_of, source_identity

    data = recipe.data.model_dump(mode="json", exclude={"image": True, "text": True, "source": {"path"}})
    content = source_identity(recipe.data.source, store.fingerprints)
    code = revision((module_of(recipe.data.source),))  # loaded by name: this step's imports do not reach it
    checks = task_code(recipe.task, ("check", "FIELDS", "LABELLED"))
    return {"task": recipe.task, "data": data, "content": content, "source_code": code, "task_code": checks}


def _ingest(work: Work) -> None:
    from understudy.data.ingest import ingest

    platform().prepare(work.run)
    for note in ingest(work.recipe.data, work.recipe.task, work.staged, work.progress):
        work.run.note(printable(note))
    work.facts |= json.loads((work.staged / "records.json").read_text())["counts"]


def step(node: Node) -> Step:
    """The step of a node of the kind `ingest`."""
    return Step(
        name=node.name,
        role=node.role,
        kind="records",
        work=_ingest,
        functions=(_ingest,),
        modules=("understudy.data.ingest",),
        section=_section,
        inputs=node.inputs,
    )
