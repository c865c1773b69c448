"""The reviewer's view of a version: metrics, tags and a description in Markdown."""

from collections.abc import Iterator, Mapping
from html import escape

from understudy.evaluate.contents import Measures, ModelMeasures, Verdict
from understudy.evaluate.metrics import three_digits
from understudy.recipe import ArchitectureModel, MetricName, Model, PretrainedModel, Recipe
from understudy.recipe.roles import ROLES, STUDENT, TEACHER

LONGEST = 8000  # characters of a tag in MLflow
NOTE, NOT_SCORED = "note", "not scored"
"""Keys of figures: a remark on them, or the reason why there are none."""
UNSCORED = {NOT_SCORED: "its model was measured in shards, and one process may not hold it"}
SERVED_PLACEHOLDER = "<!-- what is served -->"
"""The placeholder for this section in a report, which is written before registration."""
LOADERS = {"pyfunc": "MLflow", "transformers": "transformers alone"}
Figures = Mapping[str, Mapping[str, float] | str]
"""Differences of scores through a version from the measured ones, by loading method."""


def metrics(measured: ModelMeasures) -> dict[str, float]:
    """One model's measures as metrics, without those that could not be measured."""
    latency = measured["latency"]
    values: dict[str, float | None] = {
        **{str(name): value for name, value in measured["metrics"].items()},
        "parameters": measured["parameters"],
        "flops": measured["flops"],
        "bytes": measured["bytes"],
        "latency_ms": latency["median_ms"],
        "throughput_per_s": latency["throughput_per_s"],
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def all_metrics(measures: Measures) -> dict[str, float]:
    """All models' metrics, named role.metric."""
    return {
        f"{role}.{name}": value
        for role in _roles(measures)
        for name, value in metrics(measures["models"][role]).items()
    }


def key_figures(measures: Measures) -> dict[str, str]:
    """The few metrics that become tags of the version."""
    names = (measures["gate_metric"], "parameters", "latency_ms")
    values = all_metrics(measures)
    keys = [f"{role}.{name}" for role in _roles(measures) for name in names]
    return {key: f"{values[key]:.6g}" for key in keys if key in values}


def recovered_share(verdict: Verdict) -> dict[str, float]:
    """The share of the gap between control and teacher that the student closed, if there is a gap."""
    recovered = verdict.get("recovered")
    return {"recovered_share": recovered["share"]} if recovered and recovered["share"] is not None else {}


def recovered_figures(verdict: Verdict) -> dict[str, str]:
    """The recovered share with its interval, as a tag of a version."""
    recovered = verdict.get("recovered")
    return {"recovered": recovered["detail"]} if recovered else {}


def served(figures: Figures) -> str:
    """A paragraph on the differences between scores through the version and the gate's scores."""
    if isinstance(reason := figures.get(NOT_SCORED), str):
        return f"The version was not scored when it was registered: {reason}."
    by_loader = {loader: statistics for loader, statistics in figures.items() if not isinstance(statistics, str)}
    first = next(iter(by_loader.values()))
    differences = ", ".join(
        f"loaded by {LOADERS.get(loader, loader)} at most {statistics['largest_difference']:.2g} nats from "
        f"the measured ones ({100 * statistics['largest_share_of_tolerance']:.2g} % of the tolerance for rounding)"
        for loader, statistics in by_loader.items()
    )
    examples, predictions = (int(first[key]) for key in ("examples", "predictions"))
    note = f" {figures[NOTE]}." if figures.get(NOTE) else ""
    return (
        f"{examples:,} test examples with {predictions:,} predictions, scored through the version: {differences}.{note}"
    )


def report_with(report: str, paragraph: str) -> str:
    """An HTML report with a section on the scores of the served version."""
    section = f"<section>\n<h2>What is served</h2>\n<p>{escape(paragraph)}</p>\n</section>"
    return report.replace(SERVED_PLACEHOLDER, section, 1)


def intent(recipe: Recipe) -> str:
    """The student and teacher of a run, in a sentence."""
    student = _model(recipe.student.model)
    if recipe.teacher:
        teachers = f"the teacher {_model(recipe.teacher.model)}"
    else:
        teachers = ", ".join(f"{name} ({_model(teacher.model)})" for name, teacher in recipe.teachers.items())
    return f"Recipe **{recipe.name}**, {recipe.task}: the student {student} learns from {teachers}."


def _model(model: Model) -> str:
    if isinstance(model, ArchitectureModel):
        return model.type
    return model.pretrained if isinstance(model, PretrainedModel) else model.factory


def note(recipe: Recipe, measures: Measures, verdict: Verdict, version: str | None) -> str:
    """The run's page in MLflow, in Markdown: the models, the verdict, and the numbers.

    Args:
        recipe: the run's recipe.
        measures: the content of measures.json.
        verdict: the content of verdict.json.
        version: the student's version; None if it was rejected.
    """
    became = f"Registered as {recipe.model_name} version {version}." if version else "Not registered."
    lines = [intent(recipe), "", *findings(measures, verdict), "", became, "Plots and report.html are its artifacts."]
    return "\n".join(lines)[:LONGEST]


def description(measures: Measures, verdict: Verdict, run: str) -> str:
    """The version's page in MLflow, in Markdown.

    Args:
        measures: the content of measures.json.
        verdict: the content of verdict.json.
        run: the address or id of the run with the evidence.
    """
    return "\n".join([*findings(measures, verdict), f"Curves, plots and report.html: run {run}."])


def findings(measures: Measures, verdict: Verdict) -> Iterator[str]:
    """The verdict, the models side by side, and the rules, as lines of Markdown."""
    verb = "passed" if verdict["approved"] else "did not pass"
    candidate = verdict.get("candidate", STUDENT)  # a verdict of an older understudy is on a student
    hardware = ", ".join(str(measures["hardware"][key]) for key in ("device", "cpu") if measures["hardware"].get(key))
    yield f"The {candidate} {verb} the gate on {measures['examples']} examples of the test split."
    if headline := verdict.get("headline"):
        yield f"{headline[0].upper()}{headline[1:]}."
    if (teacher := verdict.get("reference", TEACHER)) != TEACHER:
        yield f"The teacher that it was compared with is {teacher}."
    for caution in verdict["cautions"]:
        yield from ("", f"**{caution}**")
    remarks = [verdict.get("judged"), *verdict.get("advice", ())]
    if recovered := verdict.get("recovered"):
        remarks.append(f"{recovered['detail'][0].upper()}{recovered['detail'][1:]}.")
    yield from (line for sentence in remarks if sentence for line in ("", sentence))
    yield ""
    yield from _table(measures)
    gate = f"Gate on {verdict['metric']}, margin {verdict['margin']:g}, confidence {verdict['confidence']:.0%}:"
    yield from ("", gate, "")
    for rule in verdict["rules"]:
        yield f"- {'✓' if rule['passed'] else '✗'} **{rule['rule']}**: {rule['detail']}"
    shards = measures["hardware"].get("processes", 1)
    how = f", each model in shards over {shards} processes: so was its speed" if shards > 1 else ""
    yield from ("", f"Measured on {hardware}{how}.")


def _table(measures: Measures) -> Iterator[str]:
    models = [measures["models"][role] for role in _roles(measures)]
    yield "| | " + " | ".join(_roles(measures)) + " |"
    yield "|---|" + "---:|" * len(models)
    for name in models[0]["metrics"]:
        yield _row(name, [_value(model, name) for model in models])
    yield _row("parameters", [f"{model['parameters']:,}" for model in models])
    yield _row("megabytes", [three_digits(model["bytes"] / 1e6) for model in models])
    size = models[0]["latency"]["batch_size"]
    yield _row(f"latency, ms (batch of {size})", [three_digits(model["latency"]["median_ms"]) for model in models])


def _value(model: ModelMeasures, name: MetricName) -> str:
    value, interval = model["metrics"].get(name), model["intervals"].get(name)
    if value is None:
        return "not measured"
    shown = three_digits(value)
    return f"{shown} [{three_digits(interval[0])}, {three_digits(interval[1])}]" if interval else shown


def _row(name: str, cells: list[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def _roles(measures: Measures) -> list[str]:
    """The models, teachers first; the champion's comes last."""
    teachers = [role for role in measures["models"] if role not in ROLES]
    return [*teachers, *(role for role in ROLES if role in measures["models"])]
