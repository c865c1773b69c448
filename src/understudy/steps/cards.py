"""A task's artifacts in KFP's pages: facts as metadata, and a card at the artifact's path. The bytes stay in the store.

A page previews the file at an artifact's address, and reports a failed preview if there is none. The panel is 470
pixels wide and a table's cells touch each other there: facts are lists, and a digest has a separate line.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from understudy.evaluate.contents import Measures, RuleOutcome, Verdict
from understudy.graph import GATE, REGISTRATION, node_of
from understudy.recipe import Recipe
from understudy.registry.server import for_people
from understudy.steps.environment import open_store
from understudy.steps.execution import result_of
from understudy.steps.gate import decision
from understudy.steps.graph import steps_of
from understudy.steps.measures import MEASURES
from understudy.steps.start import Begun
from understudy.steps.step import Result, short
from understudy.store.files import read_json

ADDRESSES = ("http://", "https://")
EMPHASIS = re.compile("[_*]")
NO_REPORT = "<p>This run is not finished: the task gate writes its report.</p>\n"


def show(artifact: Any, result: Result, digest: str = "") -> None:
    """Fill in a KFP artifact: its metadata, and the card at its path.

    Args:
        artifact: the task's output. Metrics get only the numeric facts.
        result: the step's result.
        digest: the object that the artifact represents, if not the result.
    """
    if artifact.schema_title == "system.Metrics":
        artifact.metadata = {name: value for name, value in result.facts.items() if isinstance(value, int | float)}
    else:
        artifact.metadata = {"digest": digest or result.digest, **_facts(result)}
    Path(artifact.path).write_text(card(result, digest), encoding="utf-8")


def show_start(overview: Any, report: Any, begun: Begun) -> None:
    """Fill in the artifacts of the first task: the cached results, and the report if there is one.

    Args:
        overview: Markdown. The cached results; if all are cached, also the verdict and the model version.
        report: HTML. The cached report, or a note that the gate writes it.
        begun: the run.
    """
    store = open_store()
    recipe = Recipe.model_validate(store.run(begun.run).recipe)
    steps = steps_of(recipe)
    results = {state.step: result_of(steps[state.step], store, state.digest) for state in begun.lookup.states}
    text = _overview(begun, [*steps], results)
    Path(report.path).write_text(NO_REPORT, encoding="utf-8")
    if begun.lookup.complete:
        verdict, registration = (results[node_of(recipe, kind).name] for kind in (GATE, REGISTRATION))
        text += f"\n{card(verdict)}\n{card(registration)}"
        _copy_page(verdict, report)
    overview.metadata = {"run": begun.run, "found": begun.found, "results": f"{len(results)} of {len(steps)}"}
    Path(overview.path).write_text(text, encoding="utf-8")


def _overview(begun: Begun, steps: list[str], results: Mapping[str, Result]) -> str:
    """The cached steps and the steps to run, in Markdown."""
    count = f"all {len(steps)}" if begun.lookup.complete else f"{len(results)} of {len(steps)}"
    lines = [f"# run {begun.run}: {count} results are cached", ""]
    for name, result in results.items():
        lines.append(f"- {name}: reused, {' '.join([result.digest[:12], _cell(result.outcome)]).strip()}")
    problems = [begun.lookup.problem]  # of the next step only
    for name, problem in zip_longest(steps[len(results) :], problems[: len(steps) - len(results)], fillvalue=""):
        lines.append(f"- {name}: to run{'; ' if problem else ''}{_cell(problem)}")
    return "\n".join(lines) + "\n"


def show_verdict(verdict: Any, report: Any, result: Result) -> str:
    """Fill in the artifacts of a verdict: its rules and the report.

    Returns:
        The decision: approved or rejected.
    """
    show(verdict, result)
    _copy_page(result, report)
    return decision(result.path)


def _copy_page(verdict: Result, report: Any) -> None:
    assert GATE.page is not None
    shutil.copyfile(verdict.path / GATE.page.file, report.path)


def show_confusion(artifact: Any, result: Result) -> None:
    """Log a classifier's confusion matrix, which KFP draws, if it was counted."""
    measures: Measures = read_json(result.path / MEASURES)
    if confusion := measures["confusion"]:
        artifact.log_confusion_matrix(confusion["labels"], confusion["counts"])
    Path(artifact.path).write_text(card(result), encoding="utf-8")


def card(result: Result, digest: str = "") -> str:
    """A step's result in Markdown."""
    lines = [f"# {result.step}: {_literal(result.outcome or result.kind)}", ""]
    shown = {"object": digest or result.digest, **_facts(result)}
    lines += [f"- {_literal(name)}: {_cell(value)}" for name, value in shown.items()]
    contents = result.path / GATE.contents
    if contents.exists():
        verdict: Verdict = read_json(contents)
        lines += ["", "| rule | | measured | interval | limit | |", "|---|---|---|---|---|---|"]
        lines += [_rule(rule) for rule in verdict["rules"]]
        lines += ["", *_notes(verdict)]
    return "\n".join(lines) + "\n"


def _facts(result: Result) -> dict[str, Any]:
    """A result's facts without empty ones; a page's URL is the one that users can reach."""
    facts = {name: value for name, value in result.facts.items() if value not in (None, "")}
    return {name: for_people(value) if name == "url" else value for name, value in facts.items()}


def _rule(rule: RuleOutcome) -> str:
    interval = " to ".join(_number(end) for end in rule["interval"] or ())
    cells = (_number(rule["observed"]), interval, _number(rule["threshold"]), _cell(rule["detail"]))
    return f"| {rule['rule']} | {'passed' if rule['passed'] else '**failed**'} | {' | '.join(cells)} |"


def _notes(verdict: Verdict) -> Iterator[str]:
    if verdict["recovered"]:
        yield f"- {_cell(verdict['recovered']['detail'])}"
    if verdict["control"]:
        yield f"- Gain from the teacher: {verdict['control']['meaning']} {_cell(verdict['control']['detail'])}"
    for caution in verdict["cautions"]:
        yield f"- {_cell(caution)}"
    for sentence in (*verdict["advice"], verdict["judged"]):
        if sentence:
            yield f"- {_cell(sentence)}"


def _number(value: float | None) -> str:
    return "" if value is None else short(value)


def _cell(value: object) -> str:
    """A table cell, escaped: a label or a path may contain any character."""
    text = " ".join(short(value).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[").split())
    return f"[{text}]({text})" if text.startswith(ADDRESSES) else _literal(text)


def _literal(text: str) -> str:
    """Escape Markdown's emphasis, except in addresses, which KFP turns into links."""
    words = text.split(" ")
    return " ".join(word if word.startswith(ADDRESSES) else EMPHASIS.sub(r"\\\g<0>", word) for word in words)
