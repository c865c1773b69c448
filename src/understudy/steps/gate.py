"""Measures -> the verdict, and the report that shows why."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from understudy.recipe import Recipe
from understudy.steps.champion import champion_problem
from understudy.steps.evidence import LINEAGE, lineage, reported_recipe, trained
from understudy.steps.profiles import profiles_of
from understudy.steps.step import Result, Step, Work, World
from understudy.store import Run, Store
from understudy.store.files import read_json, write_json


def _why_no_champion(run: Run, store: Store, inputs: Mapping[str, str]) -> World:
    del store, inputs
    problem = champion_problem(run)
    return World(facts={"champion_problem": problem} if problem else {})


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    del store
    return {
        "gate": recipe.gate.model_dump(mode="json"),
        "metric": recipe.gate_metric,
        "recipe": reported_recipe(recipe),
    }


def _gate(work: Work) -> None:
    import numpy as np

    from understudy.evaluate.cautions import training_losses
    from understudy.evaluate.gate import decide
    from understudy.evaluate.report import write

    measures = json.loads((work.input("measures") / "measures.json").read_text())
    with np.load(work.input("measures") / "per_example.npz") as arrays:
        per_example = dict(arrays)
    histories = _histories(work)
    verdict = decide(
        measures,
        per_example,
        work.recipe.gate,
        work.recipe.gate_metric,
        work.world.get("champion_problem", ""),
        training_losses(histories, work.recipe.student.distill),
        {role: int(history[-1]["step"]) for role, history in histories.items()},
    )
    write_json(work.staged / "verdict.json", verdict)
    write(
        work.staged,
        reported_recipe(work.recipe),
        measures,
        verdict,
        histories,
        lineage(work),
        per_example,
        profiles_of(work.run),
    )


def _histories(work: Work) -> dict[str, list[dict[str, float]]]:
    """The training curves by role; a teacher that was fetched and not trained has none."""
    from understudy.registry.curves import points_of

    read = {role: read_json(work.input(role) / "history.json") for role in trained(work)}
    known = {role: list(points_of(curve)) for role, curve in read.items() if isinstance(curve, list)}
    curves = {
        role: [dict(point) for point in points if {"loss", "skipped"} & set(point)] for role, points in known.items()
    }
    return {role: points for role, points in curves.items() if points}


def decision(verdict: Path) -> Literal["approved", "rejected"]:
    """The decision of a verdict, by its object's folder."""
    return "approved" if read_json(verdict / "verdict.json")["approved"] else "rejected"


def _outcome(result: Result) -> str:
    """The decision, and the rules that did not hold."""
    failed = [rule["rule"] for rule in read_json(result.path / "verdict.json")["rules"] if not rule["passed"]]
    said = decision(result.path)
    return said if said == "approved" else f"{said} by {', '.join(failed)}"


GATE = Step(
    name="gate",
    role="verdict",
    kind="verdict",
    work=_gate,
    modules=("understudy.evaluate.gate", "understudy.evaluate.report"),
    functions=(_gate, reported_recipe, lineage, trained),
    section=_section,
    inputs=("measures", *LINEAGE),
    outside=_why_no_champion,
    outcome=_outcome,
)
