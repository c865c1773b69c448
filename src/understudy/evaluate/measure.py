"""The evaluate step: every model on the same test split, on the same machine, in fp32.

Writes measures.json (values, intervals, sizes, speed, slices) and per_example.npz (what they were computed from, and
what the gate compares example by example).
"""

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from understudy.evaluate.contents import Confusion, Hardware, Latency, Measures, ModelMeasures, Quality
from understudy.evaluate.latency import WARM_UP, latency
from understudy.evaluate.metrics import FloatArray
from understudy.evaluate.results import CONFIDENCE, by_label, by_length, quality, slices
from understudy.evaluate.scoring import Images, Scores, score
from understudy.evaluate.splits import TestSplit, splits_by_role
from understudy.evaluate.trivial import trivial_results
from understudy.models.facts import Description
from understudy.models.files import load_model
from understudy.models.size import flops_per_example, parameter_count
from understudy.models.trust import trusted_descriptions
from understudy.models.weight_files import weight_bytes
from understudy.recipe import Recipe

CONFUSED = 100  # labels; with more of them nobody reads the matrix
Progress = Callable[[float, float, str], None]


@dataclass(frozen=True)
class Costs:
    """What a model's answers cost."""

    parameters: int
    flops: int
    """Of one example."""
    latency: Latency


@dataclass(frozen=True)
class Results:
    """What came out for all models."""

    per_example: dict[str, FloatArray]
    costs: dict[str, Costs]
    confusion: Confusion | None
    """The student's."""


def measure(
    models: Mapping[str, Path],
    digests: Mapping[str, str],
    examples: Path,
    recipe: Recipe,
    folder: Path,
    device: str,
    progress: Progress,
    records: Path | None = None,
) -> None:
    """Measure models on the test split. A model whose logits are NaN does not stop the others: its metrics are null.

    Args:
        models: a folder of a saved model for each role: teacher, student, and perhaps control and champion.
        digests: the models' digests by role.
        examples: the folder of an `examples` object; an InputError is raised where its test split is empty.
        recipe: says what to measure and how.
        folder: where measures.json and per_example.npz are written.
        device: cpu or cuda.
        progress: called with what is done, the total, and the unit.
        records: the folder of the records that the examples were made from, where a model sees images of another shape.
    """
    described = json.loads((examples / "examples.json").read_text(encoding="utf-8"))
    kinds, modules = _loaded(models, recipe, examples, torch.device(device))
    with splits_by_role(kinds, examples, records, folder, recipe.evaluate.stride) as splits:
        results = _run(modules, splits, recipe, torch.device(device), described.get("labels", ()), progress)
    found = quality(results.per_example, list(models), recipe.metrics)
    measures: Measures = {
        "task": recipe.task,
        "split": "test",
        "examples": len(splits["teacher"].tokens),
        "data": {key: described[key] for key in ("counts", "skipped")},
        "gate_metric": recipe.gate_metric,
        "confidence": CONFIDENCE,
        "hardware": hardware(torch.device(device)),
        "models": {role: _of_model(models[role], digests[role], found[role], results.costs[role]) for role in models},
        "slices": slices(results.per_example, list(models), recipe.gate_metric, _groups(splits["teacher"], described)),
        "confusion": results.confusion,
    }
    _write(folder, measures, results.per_example | trivial_results(examples))


def _loaded(
    models: Mapping[str, Path], recipe: Recipe, examples: Path, device: torch.device
) -> tuple[dict[str, Description], dict[str, nn.Module]]:
    """What the models are, and the models, by role."""
    kinds = trusted_descriptions(models, recipe.models, examples)
    return kinds, {role: load_model(path, kinds[role], device) for role, path in models.items()}


def _write(folder: Path, measures: Measures, per_example: Mapping[str, FloatArray]) -> None:
    (folder / "measures.json").write_text(json.dumps(measures, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    np.savez_compressed(folder / "per_example.npz", allow_pickle=False, **per_example)


def _of_model(path: Path, digest: str, found: Quality, costs: Costs) -> ModelMeasures:
    """All that is known of a model, in the order in which measures.json has it."""
    return {
        "digest": digest,
        "parameters": costs.parameters,
        "flops": costs.flops,
        "bytes": weight_bytes(path),
        "metrics": found["metrics"],
        "intervals": found["intervals"],
        "calibration": found["calibration"],
        "latency": costs.latency,
    }


def hardware(device: torch.device) -> Hardware:
    """What the numbers are measured on."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text(encoding="utf-8").splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _groups(split: TestSplit, described: Mapping[str, Any]) -> dict[str, NDArray[np.intp]]:
    if isinstance(split, Images):
        return by_label(split.labels, described["labels"])
    return by_length(split.bytes, "bytes")


def _run(
    modules: Mapping[str, nn.Module],
    splits: Mapping[str, TestSplit],
    recipe: Recipe,
    device: torch.device,
    labels: Sequence[str],
    progress: Progress,
) -> Results:
    """Per-example results of all models, and what their answers cost; `labels` are a classifier's."""
    settings = recipe.evaluate
    size, repeats = settings.batch_size, settings.latency.repeats
    split = splits["teacher"]
    total = len(modules) * split.batch_count(size) + WARM_UP + repeats
    done = iter(range(1, total + 1))

    def tick() -> None:
        progress(next(done), total, "batches")

    timed = settings.latency.batch_size
    inputs = {role: torch.from_numpy(splits[role].sample(timed)).to(device) for role in modules}
    flops = {role: flops_per_example(module, inputs[role]) for role, module in modules.items()}
    results: dict[str, FloatArray] = {
        "weights.tokens": split.tokens.astype(np.float64),
        "weights.bytes": split.bytes.astype(np.float64),
    }
    confusion: Confusion | None = None
    with torch.inference_mode(), _full_precision():
        for role, module in modules.items():
            counted = len(labels) if role == "student" and len(labels) <= CONFUSED else 0
            scores = Scores(len(split.tokens), counted)
            for batch in splits[role].batches(size):
                score(module, batch, device, scores)
                tick()
            results |= scores.arrays(role)
            if counted:
                confusion = {"labels": list(labels), "counts": scores.confusion.tolist()}
        speed = latency(modules, inputs, repeats, tick)
    costs = {role: Costs(parameter_count(modules[role]), flops[role], speed[role]) for role in modules}
    return Results(results, costs, confusion)


def _full_precision() -> AbstractContextManager[Any]:
    """fp32 on GPUs too: convolutions would use TF32 (10 bits of mantissa) unless told not to."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
