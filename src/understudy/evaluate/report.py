"""The evidence as one self-contained HTML file: the verdict, the numbers behind it, and their plots."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from understudy.errors import printable
from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.benchmark_scores import Benchmarks, Score, rows
from understudy.evaluate.cautions import meaning
from understudy.evaluate.completions import Completed
from understudy.evaluate.contents import Confusion, Measures, Origin, Recovered, RuleOutcome, Verdict
from understudy.evaluate.metrics import METRICS, Metric, slice_metric, three_digits
from understudy.evaluate.plots import COLOURS, SLICES, draw
from understudy.evaluate.statistics import Bootstrap, Difference
from understudy.evaluate.steadiness import is_ratio_reliable
from understudy.evaluate.worst import Example
from understudy.evaluate.worst_answers import WorstAnswer
from understudy.recipe import MetricName
from understudy.recipe.roles import CHAMPION, CONTROL, ROLES, STUDENT, TEACHER
from understudy.recipe.tasks import load
from understudy.train.profile import KINDS, Kind, Profile

KIND_TITLES: dict[Kind, str] = {
    "data": "reading data",
    "teacher": "asking the teacher",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimiser",
    "communication": "communication",
    "other": "other",
}
KIND_COLOURS: dict[Kind, str] = {
    "data": "#14b8a6",
    "teacher": "#a855f7",
    "forward": "#60a5fa",
    "backward": "#2563eb",
    "optimizer": "#f59e0b",
    "communication": "#ef4444",
    "other": "#94a3b8",
}
RULES = {
    "measured": "Everything was measured",
    "quality-against-teacher": "Quality against the teacher",
    "quality-against-champion": "Quality against the champion",
    "quality-against-control": "Not worse than the control",
    "quality-against-trivial": "Quality against the trivial predictor",
    "minimum": "Quality against the minimum",
    "size": "Size",
    "latency": "Latency",
}
WIDEST = 16  # labels of a matrix that fits on the page
MISTAKES = 12  # listed one by one
LONGEST = 24  # characters of a label in a table
LONGEST_PART = 1000  # characters of a part of an example
UNKNOWN = Origin()


@dataclass(frozen=True)
class Comparison:
    """A row of the table of paired differences, in words."""

    metric: str
    observed: str
    interval: str
    meaning: str


def write(
    folder: Path,
    recipe: Mapping[str, Any],
    measures: Measures,
    verdict: Verdict,
    histories: Mapping[str, Sequence[Mapping[str, Any]]],
    lineage: Mapping[str, str],
    per_example: Mapping[str, Any],
    profiles: Mapping[str, Profile],
    origin: Origin = UNKNOWN,
    examples: Sequence[Example] = (),
    completions: Sequence[Completed] = (),
    answers: Sequence[WorstAnswer] = (),
    learned: Sequence[Sequence[tuple[str, bool]]] = (),
    benchmarks: Benchmarks | None = None,
) -> None:
    """Write report.html, and its plots as plots/*.png. The same arguments give the same bytes.

    Args:
        folder: an existing folder.
        recipe: the complete recipe.
        measures: the content of measures.json.
        verdict: the content of verdict.json.
        histories: history.json of each trained model, by role.
        lineage: digests by name, in the order to be shown.
        per_example: the arrays of per_example.npz.
        profiles: profiles of trainings, by the trained model's role; empty unless recorded.
        origin: date and program of the verdict.
        examples: the student's worst examples.
        completions: the models' completions of documents.
        answers: the student's worst generated answers.
        learned: parts of training examples, and whether each is learned.
        benchmarks: the content of benchmarks.json, if the recipe names tasks of lm-eval.
    """
    compared_roles = _compared_roles(measures, per_example)
    bootstrap = Bootstrap(per_example, dict.fromkeys([*measures["models"], *compared_roles]))
    names = _names(measures, verdict)
    differences = _differences(bootstrap, compared_roles, verdict)
    plots = draw(measures, verdict, histories, differences)
    _keep(plots, folder / "plots")
    text = _template().render(
        recipe=recipe,
        recipe_yaml=yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True),
        task=load(measures["task"]),
        measures=measures,
        sliced=METRICS[slice_metric(measures["gate_metric"])],
        verdict=verdict,
        names=names,
        tiles=_tiles(measures, verdict, differences),
        comparisons={role: _comparisons(bootstrap, names, role, verdict) for role in compared_roles},
        plots=_encoded(plots),
        lineage=lineage,
        profiles=profiles,
        kinds=_kinds(profiles),
        origin=origin,
        examples=examples,
        completions=completions,
        answers=answers,
        learned=learned,
        benchmarks=benchmarks,
        benchmark_rows=list(rows(benchmarks, list(benchmarks["models"]))) if benchmarks else [],
        mistakes=mistakes(measures["confusion"]),
        widest=WIDEST,
    )
    (folder / "report.html").write_text(text, encoding="utf-8")


def mistakes(confusion: Confusion | None) -> list[tuple[str, str, int]]:
    """The most frequent mistakes of a classifier: label, prediction, number of examples."""
    if confusion is None:
        return []
    labels, counts = confusion["labels"], confusion["counts"]
    errors = [
        (label, answer, counts[row][column])
        for row, label in enumerate(labels)
        for column, answer in enumerate(labels)
        if row != column and counts[row][column]
    ]
    return sorted(errors, key=lambda mistake: -mistake[2])[:MISTAKES]


def _compared_roles(measures: Measures, per_example: Mapping[str, Any]) -> list[str]:
    """The models that the student is compared with; a foreign champion has per-example results, and no measures."""
    answered = {name.partition(".")[0] for name in per_example}
    teachers = [role for role in measures["models"] if role not in ROLES]
    return [role for role in (TEACHER, *teachers, CHAMPION, CONTROL) if role in measures["models"] or role in answered]


def _encoded(plots: Mapping[str, bytes]) -> dict[str, str]:
    """The plots in base64, for the page."""
    return {name: base64.b64encode(content).decode() for name, content in plots.items()}


def _names(measures: Measures, verdict: Verdict) -> list[MetricName]:
    """The measured metrics, the gate's first."""
    first = next(iter(measures["models"].values()))
    names = [name for name in METRICS if name in first["metrics"]]
    return sorted(names, key=lambda name: name != verdict["metric"])


def _differences(bootstrap: Bootstrap, roles: Sequence[str], verdict: Verdict) -> dict[str, Difference]:
    """The student minus each other model by the gate's metric, if it is finite."""
    differences = {role: _difference(bootstrap, verdict["metric"], role, verdict) for role in roles}
    return {role: difference for role, difference in differences.items() if difference}


def _kinds(profiles: Mapping[str, Profile]) -> list[Kind]:
    """The kinds of work that any training spent time on."""
    return [kind for kind in KINDS if any(profile["kinds"][kind] for profile in profiles.values())]


def _keep(plots: Mapping[str, bytes], folder: Path) -> None:
    """Write the plots as files beside the report, too, for MLflow."""
    folder.mkdir(exist_ok=True)
    for name, content in plots.items():
        (folder / f"{name}.png").write_bytes(content)


def _part(text: str) -> str:
    """A part of an untrusted text, with its line breaks; the middle of a long one is left out."""
    if len(text) > LONGEST_PART:
        text = f"{text[: LONGEST_PART // 2]} … {text[-LONGEST_PART // 2 :]}"
    return "\n".join(map(printable, text.split("\n")))


def _template() -> Template:
    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(metrics=METRICS, rules=RULES, colours=COLOURS, plotted_slices=SLICES)
    environment.globals.update(kind_titles=KIND_TITLES, kind_colours=KIND_COLOURS)
    environment.globals.update(shade=_shade)
    environment.filters["part"] = _part
    environment.filters.update(
        score=_score,
        short=_short,
        si=si,
        ms=_milliseconds,
        three_digits=three_digits,
        threshold=_threshold,
        observed=_observed,
    )
    return environment.get_template("report.html.j2")


def _short(text: str) -> str:
    """A label, shortened to leave room for others."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _score(score: Score) -> str:
    """A score of lm-eval with its standard error."""
    if score["value"] is None:
        return "not measured"
    stderr = "" if score["stderr"] is None else f" ± {three_digits(score['stderr'])}"
    return f"{three_digits(score['value'])}{stderr}"


def _shade(share: float, right: bool) -> str:
    """The background of a cell of the confusion matrix."""
    return (
        f"rgba({'37, 99, 235' if right else '220, 38, 38'}, {0.75 * min(share, 1) ** 0.5 * (0.4 if right else 1):.2f})"
    )


def si(value: float | None, unit: str) -> str:
    """A number with an SI prefix: 1234567 B is 1.23 MB."""
    if value is None:
        return "not measured"
    for power, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:.3g} {prefix}{unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()


def _milliseconds(seconds: float) -> str:
    return f"{three_digits(1000 * seconds)} ms" if seconds < 1 else f"{three_digits(seconds)} s"


def _observed(rule: RuleOutcome, metric: Metric) -> str:
    return _in_its_unit(rule["observed"], rule, metric)


def _threshold(rule: RuleOutcome, metric: Metric) -> str:
    if rule["threshold"] is None:
        return "—"
    if rule["rule"] == "quality-against-trivial":
        return "< 0"
    if rule["rule"] == "quality-against-control":
        return "interval reaches 0 or less"
    sign = "≥" if rule["rule"] == "minimum" and metric.higher_is_better else "≤"
    return f"{sign} {_in_its_unit(rule['threshold'], rule, metric).lstrip('+')}"


def _in_its_unit(value: float | None, rule: RuleOutcome, metric: Metric) -> str:
    if value is None:
        return "—"
    if rule["rule"] == "minimum":
        return metric.show(value)
    return metric.show_difference(value) if rule["rule"].startswith("quality") else f"{three_digits(value)} ×"


def _difference(bootstrap: Bootstrap, name: MetricName, role: str, verdict: Verdict) -> Difference | None:
    try:
        difference = bootstrap.difference(name, STUDENT, role, verdict["confidence"])
    except Unmeasured:
        return None
    return difference if math.isfinite(difference.low) and math.isfinite(difference.high) else None


def _comparisons(bootstrap: Bootstrap, names: Sequence[MetricName], role: str, verdict: Verdict) -> list[Comparison]:
    rows = []
    for name in names:
        metric, difference = METRICS[name], _difference(bootstrap, name, role, verdict)
        if difference is None:
            rows.append(Comparison(metric.title, "not measured", "—", "—"))
            continue
        interval = f"{metric.show_difference(difference.low)} to {metric.show_difference(difference.high)}"
        rows.append(
            Comparison(metric.title, metric.show_difference(difference.observed), interval, meaning(difference, metric))
        )
    return rows


def _tiles(measures: Measures, verdict: Verdict, differences: Mapping[str, Difference]) -> list[tuple[str, str, str]]:
    """The numbers at the top: title, value, reference."""
    metric, models = METRICS[verdict["metric"]], measures["models"]
    candidate, teacher = models[verdict["candidate"]], models[TEACHER]
    quality, reference = (metric.show(model["metrics"][verdict["metric"]]) for model in (candidate, teacher))
    share = candidate["bytes"] / teacher["bytes"]
    times, latency = candidate["latency"]["ratio_to_teacher"], three_digits(teacher["latency"]["median_ms"])
    doubt = "" if is_ratio_reliable(models, verdict["candidate"]) else ", not reliable"
    tiles = [
        (f"{verdict['candidate']}'s {metric.title}", quality, f"teacher {reference}"),
        ("size", f"{three_digits(100 * share)} %", f"of the teacher's {si(teacher['bytes'], 'B')}"),
        ("latency", f"{three_digits(100 * times)} %", f"of the teacher's {latency} ms{doubt}"),
    ]
    if CONTROL in differences:
        gain = differences[CONTROL]
        tiles.append(("against the control", metric.show_difference(gain.observed), meaning(gain, metric)))
    if verdict["recovered"]:
        tiles.append(_recovered(verdict["recovered"]))
    return tiles


def _recovered(recovered: Recovered) -> tuple[str, str, str]:
    if recovered["share"] is None or recovered["interval"] is None:
        return "gap recovered", "no gap", "to the teacher"
    low, high = (f"{100 * end:.0f}".replace("-", "−") for end in recovered["interval"])
    return (
        "gap recovered",
        f"{100 * recovered['share']:.0f} %".replace("-", "−"),
        f"{low} to {high} %, control to teacher",
    )
