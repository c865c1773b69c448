"""What KFP's pages show of a task's artifact: its facts, and a card at its address. The bytes stay in the store.

A page reads the file at an artifact's address; where there is none, it says that the preview failed.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from understudy.evaluate.contents import Measures, RuleOutcome, Verdict
from understudy.registry.server import for_people
from understudy.steps.gate import decision
from understudy.steps.graph import STEPS
from understudy.steps.measures import MEASURES
from understudy.steps.step import Result, short
from understudy.store.files import read_json


def show(artifact: Any, result: Result, digest: str = "") -> None:
    """Give an artifact of KFP's what its page shows.

    Args:
        artifact: the task's output; its metadata and the file at its path are set. Metrics get numbers alone.
        result: what the step came to.
        digest: the object that the artifact stands for, where that is not the result.
    """
    if artifact.schema_title == "system.Metrics":
        artifact.metadata = {name: value for name, value in result.facts.items() if isinstance(value, int | float)}
    else:
        artifact.metadata = {"digest": digest or result.digest, **_facts(result)}
    Path(artifact.path).write_text(card(result, digest), encoding="utf-8")


def show_verdict(verdict: Any, report: Any, result: Result) -> str:
    """Give the artifacts of a verdict what their pages show: its rules, and the report.

    Returns:
        The decision: approved or rejected.
    """
    show(verdict, result)
    shutil.copyfile(result.path / "report.html", report.path)
    return decision(result.path)


def show_confusion(artifact: Any, result: Result) -> None:
    """Give KFP what it draws of a classifier: what the student took for what. Nothing where nobody counted it."""
    measures: Measures = read_json(result.path / MEASURES)
    if confusion := measures["confusion"]:
        artifact.log_confusion_matrix(confusion["labels"], confusion["counts"])
    Path(artifact.path).write_text(card(result), encoding="utf-8")


def card(result: Result, digest: str = "") -> str:
    """What a step came to, in Markdown."""
    step = STEPS[result.step]
    lines = [f"# {step.name}: {step.outcome(result) or step.kind}", "", "| | |", "|---|---|"]
    shown = {"object": digest or result.digest, **_facts(result)}
    lines += [f"| {name} | {_cell(value)} |" for name, value in shown.items()]
    verdict: Verdict | None = read_json(result.path / "verdict.json") if step.name == "gate" else None
    if verdict:
        lines += ["", "| rule | | measured | interval | limit | |", "|---|---|---|---|---|---|"]
        lines += [_rule(rule) for rule in verdict["rules"]]
        lines += ["", *_notes(verdict)]
    return "\n".join(lines) + "\n"


def _facts(result: Result) -> dict[str, Any]:
    """A result's facts, with pages where people find them."""
    return {name: for_people(value) if name == "url" else value for name, value in result.facts.items()}


def _rule(rule: RuleOutcome) -> str:
    interval = " to ".join(_number(end) for end in rule["interval"] or ())
    cells = (_number(rule["observed"]), interval, _number(rule["threshold"]), _cell(rule["detail"]))
    return f"| {rule['rule']} | {'passed' if rule['passed'] else '**failed**'} | {' | '.join(cells)} |"


def _notes(verdict: Verdict) -> Iterator[str]:
    if verdict["recovered"]:
        yield f"- {_cell(verdict['recovered']['detail'])}"
    if verdict["control"]:
        yield f"- What the teacher was worth: {verdict['control']['meaning']} {_cell(verdict['control']['detail'])}"
    for caution in verdict["cautions"]:
        yield f"- {_cell(caution)}"
    for sentence in (*verdict["advice"], verdict["judged"]):
        if sentence:
            yield f"- {_cell(sentence)}"


def _number(value: float | None) -> str:
    return "" if value is None else short(value)


def _cell(value: object) -> str:
    """A cell of a table; a label or a path may hold anything."""
    text = " ".join(short(value).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[").split())
    return f"[{text}]({text})" if text.startswith(("http://", "https://")) else text
