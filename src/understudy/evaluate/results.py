"""The quality of models, as in measures.json, from per-example results: values, intervals, calibration, slices."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.contents import Quality
from understudy.evaluate.metrics import bins, value
from understudy.evaluate.statistics import Bootstrap
from understudy.recipe import MetricName

CONFIDENCE = 0.95  # of the intervals in measures.json; the gate computes its own, at the recipe's confidence
QUARTERS = ("shortest quarter", "second quarter", "third quarter", "longest quarter")


def quality(per_example: Mapping[str, Any], roles: Sequence[str], names: Sequence[MetricName]) -> dict[str, Quality]:
    """The quality of each model, by its role."""
    bootstrap = Bootstrap(per_example, roles)
    by_role: dict[str, Quality] = {}
    for role in roles:
        by_role[role] = {
            "metrics": {name: value(name, per_example, role) for name in names},
            "intervals": {name: _interval(bootstrap, name, role) for name in names},
            "calibration": bins(per_example, role),
        }
    return by_role


def slices(
    per_example: Mapping[str, Any], roles: Sequence[str], name: MetricName, groups: Mapping[str, NDArray[np.intp]]
) -> list[Mapping[str, str | float | None]]:
    """The metric by slice of the test split; `groups` has the rows of each slice. Empty slices are left out."""
    rows_by_slice: list[Mapping[str, str | float | None]] = []
    for group, rows in groups.items():
        if len(rows):
            values = {role: value(name, per_example, role, rows) for role in roles}
            rows_by_slice.append({"slice": group, "examples": len(rows), **values})
    return rows_by_slice


def by_label(labels: NDArray[np.int64], names: Sequence[str]) -> dict[str, NDArray[np.intp]]:
    """The examples of each label."""
    return {name: np.flatnonzero(labels == label) for label, name in enumerate(names)}


def by_length(sizes: NDArray[np.int64], unit: str) -> dict[str, NDArray[np.intp]]:
    """The examples in four equal parts by length, the shortest first."""
    parts = np.array_split(np.argsort(sizes, kind="stable"), len(QUARTERS))
    return {
        f"{quarter}: {sizes[part[0]]:,} to {sizes[part[-1]]:,} {unit}": part
        for quarter, part in zip(QUARTERS, parts, strict=True)
        if len(part)
    }


def _interval(bootstrap: Bootstrap, name: MetricName, role: str) -> list[float] | None:
    try:
        ends = bootstrap.interval(name, role, CONFIDENCE)
    except Unmeasured:
        return None
    return list(ends) if np.isfinite(ends).all() else None  # too few examples for a finite end
