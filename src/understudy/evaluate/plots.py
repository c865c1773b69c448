"""The report's plots. Every function draws one figure; a model has the same colour and marker in all of them."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from understudy.evaluate.contents import Measures, ModelMeasures, Verdict
from understudy.evaluate.metrics import METRICS, FloatArray, Metric, slice_metric
from understudy.evaluate.statistics import Difference
from understudy.recipe import MetricName
from understudy.recipe.roles import CHAMPION, CONTROL, STUDENT, TEACHER
from understudy.train.validated import losses as validated

COLOURS = {TEACHER: "#334155", STUDENT: "#2563eb", CONTROL: "#d97706", CHAMPION: "#7c3aed"}
MARKERS = {TEACHER: "s", STUDENT: "o", CONTROL: "^", CHAMPION: "D"}
ASIDE = {CONTROL: 0.015}  # of the axis to the right: it is as large and fast as the student and would hide it
GREY, RED = "#94a3b8", "#b91c1c"
WIDTH = 9.6  # inches, which are 100 pixels each in the report
SLICES = 20  # at most in the plot; the report's table has them all
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": "#475569",
    "axes.edgecolor": "#cbd5e1",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e8edf3",
    "text.color": "#1e293b",
    "xtick.color": "#64748b",
    "ytick.color": "#64748b",
    "legend.frameon": False,
}


def png(figure: Figure) -> bytes:
    """The figure as PNG; the same figure always gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=180, metadata={"Software": None})
    return buffer.getvalue()


def draw(
    measures: Measures,
    verdict: Verdict,
    histories: Mapping[str, Sequence[Mapping[str, Any]]],
    differences: Mapping[str, Difference],
) -> dict[str, bytes]:
    """All plots with data, by name.

    Args:
        measures: as in measures.json.
        verdict: as in verdict.json.
        histories: training histories by role.
        differences: student - other in the verdict's metric, by the other's role.
    """
    models, name = measures["models"], verdict["metric"]
    with matplotlib.rc_context(STYLE):
        figures: dict[str, Figure] = {}
        if differences:
            figures["differences"] = difference_plot(differences, METRICS[name], verdict["margin"])
        if _measured(models, name):
            figures["quality"] = quality_plot(models, name)
        if any(histories.values()):
            figures["training"] = training_plot(histories)
        if any(model["calibration"] for model in models.values()):
            figures["calibration"] = calibration_plot(models)
        if measures["slices"]:
            metric = METRICS[slice_metric(measures["gate_metric"])]
            figures["slices"] = slice_plot(measures["slices"], list(models), metric)
        return {title: png(figure) for title, figure in figures.items()}


def difference_plot(differences: Mapping[str, Difference], metric: Metric, margin: float) -> Figure:
    """Student minus each other model, with its interval; the losses beyond the margin are shaded."""
    figure = _figure(0.95 + 0.42 * len(differences))
    axes = figure.add_subplot()
    scale = 1 if _is_plain(metric) else 100
    worse = -1 if metric.higher_is_better else 1
    for row, (role, difference) in enumerate(differences.items()):
        ends = [[scale * (difference.observed - difference.low)], [scale * (difference.high - difference.observed)]]
        colour = COLOURS.get(role, GREY)
        _points(axes, [scale * difference.observed], [row], role, xerr=np.array(ends).clip(0), color=colour)
    lowest = min([0.0, worse * margin, *(difference.low for difference in differences.values())]) * scale
    highest = max([0.0, worse * margin, *(difference.high for difference in differences.values())]) * scale
    padding = 0.12 * (highest - lowest) or 1.0
    limits = (lowest - padding, highest + padding)
    edge = worse * margin * scale
    axes.axvspan(edge, limits[0] if worse < 0 else limits[1], color=RED, alpha=0.07, linewidth=0)
    axes.axvline(edge, color=RED, linewidth=1, linestyle=(0, (4, 3)))
    axes.axvline(0, color="#475569", linewidth=1)
    axes.set_yticks(range(len(differences)), [f"student − {role}" for role in differences])
    axes.set_ylim(len(differences) - 0.4, -0.6)
    axes.set_xlim(*limits)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0, labelcolor="#1e293b")
    unit = f"{metric.title} (absolute)" if scale == 1 else f"{metric.title}, {'%' if metric.relative else 'points'}"
    axes.set_xlabel(f"difference in {unit}; red: worse than the margin allows")
    return figure


def quality_plot(models: Mapping[str, ModelMeasures], name: MetricName) -> Figure:
    """The verdict's metric against bytes on disk and against latency."""
    figure = _figure(3.5)
    metric, measured = METRICS[name], _measured(models, name)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, title, values in (
        (left, "weights on disk, MB", {role: models[role]["bytes"] / 1e6 for role in measured}),
        (right, "median latency, ms", {role: models[role]["latency"]["median_ms"] for role in measured}),
    ):
        is_wide = max(values.values()) > 50 * min(values.values())
        right_end = 1.12 * max(values.values())
        axes.set(xscale="log") if is_wide else axes.set(xlim=(0, right_end))
        for role, value in measured.items():
            interval = models[role]["intervals"][name]
            ends = np.array([[value - interval[0]], [interval[1] - value]]).clip(0) if interval else None
            offset = ASIDE.get(role, 0) * (values[role] * 5 if is_wide else right_end)
            _points(axes, [values[role] + offset], [value], role, yerr=ends, color=COLOURS.get(role, GREY), label=role)
        axes.set_xlabel(title)
    _percent(left, metric)
    left.set_ylabel(f"{metric.title} ({'higher' if metric.higher_is_better else 'lower'} is better)")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(measured))
    return figure


def training_plot(histories: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Training loss of each model, raw and smoothed, and validation loss if measured; dotted lines are skipped steps.

    Each model has its own axes: the losses are different functions.
    """
    curves = {role: [entry for entry in history if "skipped" not in entry] for role, history in histories.items()}
    trained = {role: curve for role, curve in curves.items() if curve}
    figure = _figure(2.7)
    for axes, (role, history) in zip(figure.subplots(1, len(trained), squeeze=False)[0], trained.items(), strict=True):
        steps = np.array([entry["step"] for entry in history])
        losses = np.array([entry["loss"] for entry in history], dtype=np.float64)
        axes.plot(steps, losses, color=COLOURS.get(role, GREY), alpha=0.25, linewidth=0.8)
        axes.plot(steps, smoothed(losses), color=COLOURS.get(role, GREY), linewidth=1.8)
        measured = validated(history)
        if measured:
            axes.plot(
                *zip(*measured, strict=True), color=RED, marker=".", linewidth=1.2, label="validation, labels alone"
            )
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)  # beside the title, over no curve
        for entry in histories[role]:
            if "skipped" in entry:
                axes.axvline(entry["step"], color=GREY, linewidth=0.6, linestyle=":")
        axes.set_title("\n".join([role, *_left_out(histories[role])]))
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if losses.min() > 0 and losses.max() > 30 * losses.min():
            axes.set_yscale("log")
    figure.axes[0].set_ylabel("training loss")
    return figure


def _left_out(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Counts of the steps and batches that the guard left out, a line for each kind."""
    kinds = {"skipped": "steps skipped", "passed_over": "batches passed over"}
    counts = {kind: max((int(entry[kind]) for entry in history if kind in entry), default=0) for kind in kinds}
    return [f"{counts[kind]} {words}" for kind, words in kinds.items() if counts[kind]]


def smoothed(losses: FloatArray) -> FloatArray:
    """The mean over a window of a twentieth of the steps, centred; shorter at the ends. (N,) to (N,)."""
    half = len(losses) // 40
    sums = np.concatenate([[0.0], np.cumsum(losses)])
    ends = np.minimum(np.arange(len(losses)) + half + 1, len(losses))
    starts = np.maximum(np.arange(len(losses)) - half, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts), dtype=np.float64)


def calibration_plot(models: Mapping[str, ModelMeasures]) -> Figure:
    """Accuracy against confidence; below, the share of predictions by confidence."""
    roles = [role for role in models if models[role]["calibration"]]
    figure = _figure(3.6)
    grid = figure.subplots(2, len(roles), squeeze=False, sharex=True, sharey="row", height_ratios=[3, 1])
    for (upper, lower), role in zip(grid.T, roles, strict=True):
        colour = COLOURS.get(role, GREY)
        bins = models[role]["calibration"]
        filled = [entry for entry in bins if entry["weight"]]
        confidence, accuracy = [entry["confidence"] for entry in filled], [entry["accuracy"] for entry in filled]
        sizes = [12 + 160 * entry["weight"] for entry in filled]
        upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        upper.plot(confidence, accuracy, color=colour, linewidth=1.2, alpha=0.6)
        upper.scatter(confidence, accuracy, s=sizes, color=colour, linewidths=0)
        upper.set_title(role)
        upper.set(xlim=(-0.04, 1.04), ylim=(-0.06, 1.08))
        edges = np.linspace(0, 1, len(bins) + 1)
        lower.bar(edges[:-1], [entry["weight"] for entry in bins], width=0.9 / len(bins), align="edge", color=colour)
        lower.set_xlabel("confidence")
        lower.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    grid[0][0].set_ylabel("share right")
    grid[1][0].set_ylabel("predictions")
    return figure


def slice_plot(slices: Sequence[Mapping[str, Any]], roles: Sequence[str], metric: Metric) -> Figure:
    """The metric by slice; with many slices, those where the student is worst."""
    shown = list(slices)
    if len(shown) > SLICES:
        direction = 1 if metric.higher_is_better else -1
        shown = sorted(
            (entry for entry in shown if entry[STUDENT] is not None), key=lambda entry: direction * entry[STUDENT]
        )
        shown = shown[:SLICES]
    figure = _figure(1.1 + (0.14 + 0.085 * len(roles)) * len(shown))
    axes = figure.add_subplot()
    for row in range(0, len(shown), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f1f5f9", linewidth=0, zorder=0)
    axes.grid(visible=False, axis="y")
    shift = (np.arange(len(roles)) - (len(roles) - 1) / 2) * 0.85 / len(roles)
    for offset, role in zip(shift, roles, strict=True):
        points = [(entry[role], row + offset) for row, entry in enumerate(shown) if entry[role] is not None]
        values, rows = [value for value, _ in points], [row for _, row in points]
        _points(axes, values, rows, role, color=COLOURS.get(role, GREY), label=role)
    axes.set_yticks(range(len(shown)), [f"{_short(entry['slice'])}  ({entry['examples']:,})" for entry in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor="#1e293b")
    axes.set_xlabel(metric.title)
    _percent(axes, metric, axis="x")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(roles))
    return figure


def _figure(height: float) -> Figure:
    return Figure(figsize=(WIDTH, height), layout="constrained")


def _points(axes: Axes, x: Sequence[float], y: Sequence[float], role: str, **style: Any) -> None:
    axes.errorbar(
        x, y, fmt=MARKERS.get(role, "o"), markersize=6, elinewidth=1.6, capsize=3, markeredgecolor="white", **style
    )


def _measured(models: Mapping[str, ModelMeasures], name: MetricName) -> dict[str, float]:
    """The metric of each model that has one."""
    values = {role: model["metrics"].get(name) for role, model in models.items()}
    return {role: value for role, value in values.items() if value is not None}


def _is_plain(metric: Metric) -> bool:
    return not metric.relative and not metric.style.endswith("%")


def _percent(axes: Axes, metric: Metric, axis: str = "y") -> None:
    if metric.style.endswith("%"):
        (axes.yaxis if axis == "y" else axes.xaxis).set_major_formatter(PercentFormatter(1))


def _short(text: str) -> str:
    shown = text if len(text) <= 48 else f"{text[:47]}…"
    return shown.replace("$", r"\$")  # matplotlib reads a pair of them as mathematics
