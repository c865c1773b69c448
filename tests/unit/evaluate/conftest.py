from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from understudy.evaluate.metrics import BINS, bin_of
from understudy.evaluate.results import by_label, by_length, quality, slices
from understudy.recipe import TaskName
from understudy.recipe.tasks import load

LABELS = [str(digit) for digit in range(10)]


def image_results(count: int, accuracies: dict[str, float], seed: int = 0) -> dict[str, np.ndarray]:
    """Per-example results of models that find the same images hard."""
    generator = np.random.default_rng(seed)
    hardness = generator.random(count)
    arrays = {"weights.tokens": np.ones(count), "weights.bytes": np.zeros(count)}
    for role, accuracy in accuracies.items():
        correct = (hardness + generator.normal(0, 0.01, count) < accuracy).astype(float)
        confidence = np.clip(1 - hardness**6 * (1.15 - accuracy) * 4 - 0.06 * generator.random(count), 0.1, 1)
        wrong = -np.log((1 - confidence) / 9 + 1e-9)
        arrays |= {f"{role}.nll": np.where(correct == 1, -np.log(confidence), wrong), f"{role}.correct": correct}
        indices = (np.arange(count), bin_of(confidence))
        for part, values in (("count", 1.0), ("sum", confidence), ("correct", correct)):
            arrays[f"{role}.confidence_{part}"] = np.zeros((count, BINS))
            arrays[f"{role}.confidence_{part}"][indices] = values
    arrays |= {"trivial.nll": np.full(count, np.log(10)), "trivial.correct": (np.arange(count) % 10 == 0).astype(float)}
    return arrays


def text_results(count: int, losses: dict[str, float], seed: int = 0) -> dict[str, np.ndarray]:
    """Per-document results; `losses` are nats per token."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(5, 800, count).astype(float)
    size = np.round(tokens * generator.normal(3.6, 0.3, count))
    hardness = generator.normal(1, 0.15, count)
    arrays = {"weights.tokens": tokens, "weights.bytes": size}
    for role, loss in losses.items():
        arrays[f"{role}.nll"] = tokens * loss * hardness * generator.normal(1, 0.02, count)
        arrays[f"{role}.correct"] = generator.binomial(tokens.astype(int), np.exp(-loss / 2)).astype(float)
        shares = generator.dirichlet(np.linspace(3, 0.5, BINS), count) * tokens[:, None]
        middle = (np.arange(BINS) + 0.5) / BINS
        arrays[f"{role}.confidence_count"] = shares
        arrays[f"{role}.confidence_sum"] = shares * middle
        arrays[f"{role}.confidence_correct"] = shares * np.clip(middle * generator.normal(0.95, 0.02, BINS), 0, 1)
    arrays |= {"trivial.nll": 6.0 * tokens, "trivial.correct": 0.05 * tokens}
    return arrays


def measures_of(arrays: dict[str, np.ndarray], task: TaskName, labels: list[str] = LABELS) -> dict[str, Any]:
    """measures.json for per-example results, with sizes and speeds made up."""
    roles = [name.removesuffix(".nll") for name in arrays if name.endswith(".nll") and not name.startswith("trivial")]
    names = load(task).METRICS
    results = quality(arrays, roles, names)
    count = len(arrays["weights.tokens"])
    sizes = {"teacher": 3_370_000, "student": 790_000, "control": 790_000, "champion": 1_210_000}
    times = {"teacher": 4.21, "student": 1.37, "control": 1.36, "champion": 1.81}
    groups = (
        by_label(np.arange(count) % len(labels), labels)
        if task == "image-classification"
        else by_length(arrays["weights.bytes"].astype(np.int64), "bytes")
    )
    return {
        "task": task,
        "split": "test",
        "examples": count,
        "data": {"counts": {"train": 4 * count, "validation": 0, "test": count}, "skipped": 2},
        "gate_metric": names[0],
        "reference": "teacher",
        "confidence": 0.95,
        "hardware": {
            "device": "cpu",
            "cpu": "AMD EPYC",
            "cores": 2,
            "threads": 2,
            "processes": 1,
            "torch": "2.15.0",
            "precision": "fp32",
        },
        "models": {
            role: {
                "digest": f"{index:x}" * 64,
                "parameters": sizes[role] // 4,
                "flops": sizes[role] * 9,
                "bytes": sizes[role],
                **results[role],
                "latency": {
                    "batch_size": 1,
                    "median_ms": times[role],
                    "min_ms": times[role] * 0.93,
                    "p95_ms": times[role] * 1.2,
                    "throughput_per_s": 1000 / times[role],
                    "ratio_to_teacher": times[role] / times["teacher"],
                },
            }
            for index, role in enumerate(roles)
        },
        "slices": slices(arrays, roles, names[0], groups),
        "confusion": None,
    }


@pytest.fixture(scope="session")
def images() -> Callable[..., dict[str, np.ndarray]]:
    return image_results


@pytest.fixture(scope="session")
def texts() -> Callable[..., dict[str, np.ndarray]]:
    return text_results


@pytest.fixture(scope="session")
def measured() -> Callable[..., dict[str, Any]]:
    return measures_of
