"""How often the gate passes a student whose true loss of a metric of answers, such as macro F1, is exactly the margin.

python -m benchmarks.agreement_rates [--sets 1000] [--resamples 500]

As gate_rates.py: test sets are drawn from shares of labels and of two models' answers, of which
the true loss follows, and the gate's own code decides on each. At most 2.5 % may pass.
"""

import argparse
import os
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.metrics import METRICS, FloatArray
from understudy.evaluate.quality import loss
from understudy.evaluate.statistics import Bootstrap
from understudy.recipe import MetricName

NAMES: tuple[MetricName, ...] = tuple(name for name, metric in METRICS.items() if metric.from_answers)
POPULATION = 10**6
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """Shares of the labels, the teacher's accuracy, and the share of its answers that the student changes."""

    title: str
    labels: tuple[float, ...]
    accuracy: float
    repaired: float
    """Of its wrong answers, to the right one."""
    spoiled: tuple[float, ...]
    """Of its right answers, by label, to a wrong one."""
    examples: tuple[int, ...]


CASES = (
    Case("two labels", (0.5, 0.5), 0.9, 0.1, (0.04, 0.04), (100, 400, 2000)),
    Case("two, one of 20 %", (0.8, 0.2), 0.9, 0.1, (0.02, 0.08), (400, 2000)),
    Case("two, the loss in one of 5 %", (0.95, 0.05), 0.95, 0.05, (0.0, 0.2), (1000, 2000)),
    Case("three, the loss in one of 5 %", (0.6, 0.35, 0.05), 0.9, 0.1, (0.01, 0.01, 0.2), (1000, 2000)),
    Case("two, no loss but few answers", (0.5, 0.5), 0.95, 0.0, (0.01, 0.01), (400, 2000)),
)


def cells(case: Case) -> FloatArray:
    """The share of examples by label, teacher's answer and student's answer."""
    count = len(case.labels)
    shares = np.zeros((count, count, count))
    for label, teacher, student in np.ndindex(shares.shape):
        right = case.accuracy if teacher == label else (1 - case.accuracy) / (count - 1)
        if teacher == label:
            agreeing = 1 - case.spoiled[label] if student == teacher else case.spoiled[label] / (count - 1)
        else:
            agreeing = {teacher: 1 - case.repaired, label: case.repaired}.get(student, 0.0)
        shares[label, teacher, student] = case.labels[label] * right * agreeing
    total: float = shares.sum()
    return np.asarray(shares / total, dtype=np.float64)


def results(counts: Counts) -> dict[str, FloatArray]:
    """Per-example results, from the number of examples in each cell."""
    target, *answers = np.repeat(np.indices(counts.shape).reshape(3, -1), counts.ravel(), axis=1).astype(np.float64)
    arrays = {"weights.tokens": np.ones(len(target)), "weights.target": target}
    for role, answer in zip(("teacher", "student"), answers, strict=True):
        arrays |= {f"{role}.answer": answer, f"{role}.correct": (answer == target).astype(np.float64)}
    return arrays


def margin(shares: FloatArray, name: MetricName) -> float:
    """The true loss of the student."""
    bootstrap = Bootstrap(results(np.round(shares * POPULATION).astype(np.int64)), ["teacher", "student"])
    assert METRICS[name].higher_is_better
    return bootstrap.value(name, "teacher") - bootstrap.value(name, "student")


def passed(counts: Counts, name: MetricName, true: float, resamples: int) -> bool:
    """Whether the gate rules out a loss above the margin."""
    bootstrap = Bootstrap(results(counts), ["teacher", "student"], resamples)
    try:
        return loss(bootstrap, name, "teacher", 0.95).high <= true
    except Unmeasured:
        return False


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=500)
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    titles = " | ".join(f"{METRICS[name].title} passed" for name in NAMES)
    print(f"| labels | test examples | {titles} |\n|---|---|{'---|' * len(NAMES)}")
    for case in CASES:
        shares = cells(case)
        true = {name: margin(shares, name) for name in NAMES}
        for examples in case.examples:
            sets = [generator.multinomial(examples, shares.ravel()).reshape(shares.shape) for _ in range(options.sets)]
            rates = [
                np.mean([passed(counts, name, true[name], options.resamples) for counts in sets]) for name in NAMES
            ]
            print(
                f"| {case.title} | {examples:,} | " + " | ".join(f"{100 * rate:.1f} %" for rate in rates) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
