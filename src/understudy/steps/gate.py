"""Measures -> the verdict, and the report with its reasons."""

import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from understudy import __version__
from understudy.data.card import BUILT_IN, card
from understudy.errors import UnderstudyError
from understudy.graph import BENCHMARKS, EXAMPLES, MEASURES, RECORDS, Node, trainings
from understudy.recipe import Recipe
from understudy.recipe.tasks import load
from understudy.revision import commit
from understudy.steps.champion import champion_problem
from understudy.steps.evidence import lineage, reported_recipe, roles, trained
from understudy.steps.foreign import RECORD
from understudy.steps.identity import task_code
from understudy.steps.profiles import profiles_of
from understudy.steps.step import Result, Step, Work, World
from understudy.store import Run, Store
from understudy.store.files import canonical, read_json, sha256, write_json
from understudy.store.judged import Judged

if TYPE_CHECKING:
    from understudy.evaluate.benchmark_scores import Benchmarks
    from understudy.evaluate.contents import Origin
    from understudy.evaluate.gate import Circumstances


def _around(run: Run, store: Store, inputs: Mapping[str, str]) -> World:
    """What is outside recipe and store: the champion's problem, the data card, and the history of the candidate.

    That is its number among the models judged on this test split, and the rules by which it was rejected before.
    """
    recipe, problem = Recipe.model_validate(run.recipe), champion_problem(run)
    candidate = _judged(recipe, store, inputs)
    facts = {"judged": str(candidate.number), **({"champion_problem": problem} if problem else {})}
    if rejections := candidate.earlier_rejections(rules(recipe)):
        facts["rejections"] = json.dumps(rejections)
    data_card = card(getattr(recipe.data.source, "path", None))
    return World(facts=facts | ({"card": json.dumps(data_card)} if data_card else {}))


def _judged(recipe: Recipe, store: Store, inputs: Mapping[str, str]) -> Judged:
    """The candidate among those judged on this test split."""
    return store.judged(recipe.model_name, split_digest(store, inputs[EXAMPLES]), inputs[recipe.candidate])


def rules(recipe: Recipe) -> dict[str, Any]:
    """The gate's settings, with the metric that it compares."""
    return {**recipe.gate.model_dump(mode="json"), "metric": recipe.gate_metric}


def _record(node: Node, run: Run, store: Store) -> None:
    """Record the rules and the outcome, so that a later verdict by other rules can tell of a rejection."""
    state = run.state(node.name)
    manifest = store.objects.manifest(state.digest) if state else None
    if state and manifest:
        recipe, approved = Recipe.model_validate(run.recipe), decision(store.objects.path(state.digest)) == "approved"
        _judged(recipe, store, manifest.inputs).record(rules(recipe), approved=approved)


def split_digest(store: Store, examples: str) -> str:
    """The digest of the test split, independent of the training data."""
    manifest = store.objects.manifest(examples)
    if manifest is None:
        raise UnderstudyError(f"{examples}: the examples are not in the store, or damaged; run again")
    files = [[path, digest] for path, _, digest in manifest.files if path.startswith("test.")]
    return sha256(canonical(files))


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    del store
    return {
        "gate": recipe.gate.model_dump(mode="json"),
        "metric": recipe.gate_metric,
        "candidate": recipe.candidate,
        "recipe": reported_recipe(recipe),
        "task_code": task_code(recipe.task, ("targets", "shown", "learned", "LABELLED", "NOUN")),
    }


def _gate(work: Work) -> None:
    import numpy as np

    from understudy.evaluate.completions import completed
    from understudy.evaluate.gate import decide
    from understudy.evaluate.reference import reference_as_teacher, renamed_roles
    from understudy.evaluate.report import write
    from understudy.evaluate.task import evaluated_task
    from understudy.evaluate.worst import worst
    from understudy.evaluate.worst_answers import worst_answers

    measures = json.loads((work.input(MEASURES) / "measures.json").read_text())
    with np.load(work.input(MEASURES) / "per_example.npz") as arrays:
        per_example = dict(arrays)
    teacher = measures["reference"]
    measures, per_example = reference_as_teacher(measures, per_example)
    histories = renamed_roles(_histories(work), teacher)
    around = _circumstances(work, histories, teacher)
    verdict = decide(measures, per_example, work.recipe.gate, work.recipe.gate_metric, around)
    write_json(work.staged / "verdict.json", verdict)
    write(
        work.staged,
        reported_recipe(work.recipe),
        measures,
        verdict,
        histories,
        lineage(work),
        per_example,
        renamed_roles(profiles_of(work.run), teacher),
        _origin(work),
        worst(work.input(EXAMPLES), work.input(RECORDS), per_example),
        completed(work.input(EXAMPLES), per_example, work.recipe.generation),
        worst_answers(work.input(EXAMPLES), work.input(RECORDS), per_example, work.recipe.generation),
        evaluated_task(work.recipe.task).learned(work.input(EXAMPLES)),
        _benchmarks(work, teacher),
    )


def _benchmarks(work: Work, teacher: str) -> "Benchmarks | None":
    """The scores on lm-eval's tasks, if there are any; `teacher` has the role of the teacher."""
    from understudy.evaluate.benchmark_scores import CONTENTS
    from understudy.evaluate.reference import renamed_roles

    if BENCHMARKS not in work.inputs:
        return None
    scores: Benchmarks = read_json(work.input(BENCHMARKS) / CONTENTS)
    return {**scores, "models": renamed_roles(scores["models"], teacher)}


def _circumstances(work: Work, histories: Mapping[str, list[dict[str, float]]], teacher: str) -> "Circumstances":
    """The inputs of the verdict besides the measurements.

    Args:
        work: the step's context.
        histories: the training curves by role; `teacher` has the role of the teacher.
        teacher: the name of the teacher that the student is compared with.
    """
    from understudy.evaluate.cautions import training_losses
    from understudy.evaluate.copies import on_copies
    from understudy.evaluate.gate import Circumstances
    from understudy.evaluate.rejections import rejected_before

    recipe, earlier = work.recipe, json.loads(work.world.get("rejections", "[]"))
    return Circumstances(
        champion_problem=work.world.get("champion_problem", ""),
        training_losses=training_losses(_of_labels(recipe, histories, teacher), recipe.objectives),
        steps={role: int(history[-1]["step"]) for role, history in histories.items()},
        objectives=recipe.objectives,
        candidate=recipe.candidate,
        judged=int(work.world["judged"]),
        foreign=_foreign(work),
        rejections=rejected_before(recipe.candidate, earlier, rules(recipe)),
        copies=on_copies(read_json(work.input(RECORDS) / "records.json"), load(recipe.task)),
    )


def _of_labels(recipe: Recipe, histories: Mapping[str, list[dict[str, float]]], teacher: str) -> dict[str, Any]:
    """The curves without those of teachers that learned from a teacher: their loss is not that of the labels."""
    from understudy.evaluate.reference import renamed_roles

    taught = {node.role for node in trainings(recipe) if node.teachers and not node.is_student}
    return {
        role: curve for role, curve in histories.items() if role not in renamed_roles(dict.fromkeys(taught), teacher)
    }


def _origin(work: Work) -> "Origin":
    """The time, run and version of the judgement, and the data's origin: they do not affect the verdict."""
    from understudy.evaluate.contents import Origin

    source, revision = work.recipe.data.source, commit()
    data = {"source": source.type, **BUILT_IN.get(source.type, {}), **json.loads(work.world.get("card", "{}"))}
    if path := getattr(source, "path", None):
        data["path"] = str(path)
    return Origin(
        judged=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        run=work.run.id,
        tool=f"understudy {__version__}" + (f", commit {revision[:12]}" if revision else ""),
        data=data,
    )


def _foreign(work: Work) -> str:
    """The name and version of a champion that understudy did not make; empty if there is none."""
    champion = read_json(work.input(MEASURES) / RECORD)
    return f"{champion['name']} version {champion['version']}" if champion else ""


def _histories(work: Work) -> dict[str, list[dict[str, float]]]:
    """The training curves by role; a teacher that was fetched and not trained has none."""
    from understudy.registry.curves import points_of

    curves = {role: read_json(work.input(role) / "history.json") for role in trained(work)}
    points_by_role = {role: list(points_of(curve)) for role, curve in curves.items() if isinstance(curve, list)}
    histories = {
        role: [dict(point) for point in points if {"loss", "skipped"} & set(point)]
        for role, points in points_by_role.items()
    }
    return {role: points for role, points in histories.items() if points}


def decision(verdict: Path) -> Literal["approved", "rejected"]:
    """The decision of a verdict, by its object's folder."""
    return "approved" if read_json(verdict / "verdict.json")["approved"] else "rejected"


def _outcome(result: Result) -> str:
    """The decision with its margin, or the failed rules."""
    return str(read_json(result.path / "verdict.json")["headline"])


def step(node: Node) -> Step:
    """The step of a node of the kind `gate`."""
    return Step(
        name=node.name,
        role=node.role,
        kind="verdict",
        work=_gate,
        modules=(
            "understudy.evaluate.gate",
            "understudy.evaluate.reference",
            "understudy.evaluate.report",
            "understudy.evaluate.worst",
            "understudy.evaluate.completions",
            "understudy.data.card",
            "understudy.data.records",
        ),
        functions=(
            _gate,
            _benchmarks,
            _circumstances,
            _foreign,
            _of_labels,
            _origin,
            reported_recipe,
            lineage,
            roles,
            trained,
        ),
        section=_section,
        inputs=node.inputs,
        outside=_around,
        outcome=_outcome,
        follow=partial(_record, node),
    )
