"""The evaluate step: measure all models on the same test split in one precision, and time them side by side.

Writes measures.json (values, intervals, sizes, speed, slices), per_example.npz (the sums behind them, which the gate
compares example by example), and the results of each model that was not measured before.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from understudy.data.measured import TestSplit
from understudy.errors import InputError
from understudy.evaluate import answers
from understudy.evaluate.answers import Results, by_role
from understudy.evaluate.contents import CONFUSION, Confusion, Hardware, Latency, Measures, ModelMeasures, Quality
from understudy.evaluate.costs import Costs, hardware, inference_costs
from understudy.evaluate.generated_answers import AGREEMENT, Answerable
from understudy.evaluate.latency import WARM_UP, latency
from understudy.evaluate.loading import kind_of, load_models
from understudy.evaluate.metrics import TARGETS, FloatArray, collects_answers, slice_metric
from understudy.evaluate.reference import reference_teacher
from understudy.evaluate.results import CONFIDENCE, by_label, by_length, quality, slices
from understudy.evaluate.shares import WHOLE, Share
from understudy.evaluate.splits import splits_by_role
from understudy.evaluate.task import evaluated_task
from understudy.evaluate.trivial import trivial_results
from understudy.models.facts import Facts, read_facts
from understudy.models.trust import trusted_descriptions
from understudy.models.weight_files import weight_bytes
from understudy.parallel.peers import is_lost_peer
from understudy.recipe import EvaluatePrecision, Generation, Recipe
from understudy.recipe.roles import STUDENT

Progress = Callable[[float, float, str], None]


def measure(
    models: Mapping[str, Path],
    digests: Mapping[str, str],
    examples: Path,
    recipe: Recipe,
    folder: Path,
    device: str,
    progress: Progress,
    records: Path | None = None,
    cached_results: Mapping[str, Path] | None = None,
    share: Share = WHOLE,
) -> None:
    """Measure models on the test split. A model whose logits are NaN does not stop the others: its metrics are null.

    The first rank writes the files and times the models; sharded models are timed by all ranks.

    Args:
        models: a folder of a saved model for each role: teachers, student, and perhaps control and champion.
        digests: the models' digests by role.
        examples: the folder of an `examples` object.
        recipe: the metrics and settings.
        folder: output folder.
        device: cpu or cuda.
        progress: called with the amount done, the total, and the unit.
        records: the folder of the records behind the examples; needed if a model takes images of another shape.
        cached_results: by role, files of earlier results; those models are only timed.
        share: this rank's share of the batches; unless it is WHOLE there must be a process group of all ranks.

    Raises:
        InputError: the test split is empty, or a model does not compute in the recipe's precision.
    """
    facts, target_device = json.loads((examples / "examples.json").read_text(encoding="utf-8")), torch.device(device)
    descriptions = trusted_descriptions(models, recipe.models, examples)
    modules = load_models(
        models, descriptions, target_device, share.spread, kind_of(recipe.evaluate.precision, target_device)
    )
    earlier = {role: answers.read(path) for role, path in (cached_results or {}).items()}
    size, labels = answers.batch_size(recipe.evaluate.batch_size, facts), len(facts.get("labels", ()))
    with splits_by_role(descriptions, examples, records, folder, recipe.evaluate.stride) as splits:
        _check_precision(modules, splits, target_device, recipe.evaluate.precision)
        batches = (
            _batch_count(splits, size, recipe.generation, earlier, models) + WARM_UP + recipe.evaluate.latency.repeats
        )
        advance = _advance(progress, batches)
        results = _results(modules, splits, earlier, size, labels, target_device, advance, share, recipe)
        costs = inference_costs(modules, splits, recipe, target_device, lambda: advance(1), share)
    if share.rank == 0:
        machine = hardware(target_device, recipe.evaluate.precision, share)
        _write_results(folder, results, earlier)
        contents = _measures(
            models, digests, recipe, examples, splits[next(iter(recipe.all_teachers))], results, costs, machine
        )
        _write_measures(folder, *contents, trivial_results(examples))


def _check_precision(
    modules: Mapping[str, nn.Module],
    splits: Mapping[str, TestSplit],
    device: torch.device,
    precision: EvaluatePrecision,
) -> None:
    """Check that all models compute in bf16: a training checks only its own model, not champions or earlier models.

    Raises:
        InputError: a model does not.
    """
    if precision == "fp32":
        return
    for role, module in modules.items():
        try:
            with torch.inference_mode():
                module(torch.from_numpy(splits[role].sample(1)).to(device))
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError) or is_lost_peer(error):
                raise
            message = " ".join(str(error).split())[:500]
            raise InputError(
                f"evaluate.precision: bf16: the {role} does not compute in it ({message}); measure in fp32"
            ) from error


def _measures(
    models: Mapping[str, Path],
    digests: Mapping[str, str],
    recipe: Recipe,
    examples: Path,
    split: TestSplit,
    results: Mapping[str, Results],
    costs: Mapping[str, Costs],
    machine: Hardware,
) -> tuple[Measures, dict[str, FloatArray]]:
    """The contents of measures.json and of per_example.npz."""
    facts, per_example = read_facts(examples), _per_example(split, results)
    if collects_answers(recipe.task):
        per_example[TARGETS] = evaluated_task(recipe.task).targets(examples, "test").astype(np.float64)
    generated = Answerable(examples, recipe.generation)
    per_example |= generated.scores(per_example, recipe.metrics)
    qualities, groups = quality(per_example, list(models), recipe.metrics), _groups(split, examples, facts)
    teacher = reference_teacher(recipe, {role: qualities[role]["metrics"] for role in qualities})
    if AGREEMENT in recipe.metrics:
        per_example |= generated.agreement(per_example, teacher)
        qualities = quality(per_example, list(models), recipe.metrics)
    latencies = {
        role: latency(cost.rounds, costs[teacher].rounds, recipe.evaluate.latency.batch_size)
        for role, cost in costs.items()
    }
    measures: Measures = {
        "task": recipe.task,
        "split": "test",
        "examples": len(split.tokens),
        "data": {key: value for key, value in facts.items() if key in ("counts", "skipped")},
        "gate_metric": recipe.gate_metric,
        "reference": teacher,
        "confidence": CONFIDENCE,
        "hardware": machine,
        "models": {
            role: _model_measures(models[role], digests[role], qualities[role], costs[role], latencies[role])
            for role in models
        },
        "slices": slices(per_example, list(models), slice_metric(recipe.gate_metric), groups),
        "confusion": _confusion(results[STUDENT], facts.get("labels", ())) if STUDENT in results else None,
    }
    return measures, per_example


def _batch_count(
    splits: Mapping[str, TestSplit],
    size: int,
    limits: Generation,
    earlier: Mapping[str, Results],
    roles: Iterable[str],
) -> int:
    """The number of batches to predict; a token of each batch of prompts counts as one."""
    return sum(answers.step_count(splits[role], size, limits) for role in roles if role not in earlier)


def _advance(progress: Progress, total: int) -> Callable[[int], None]:
    """A callback that reports a number of further batches as done."""
    done = 0

    def advance(batches: int) -> None:
        nonlocal done
        done += batches
        progress(done, total, "batches")

    return advance


def _results(
    modules: Mapping[str, nn.Module],
    splits: Mapping[str, TestSplit],
    earlier: Mapping[str, Results],
    size: int,
    labels: int,
    device: torch.device,
    tick: Callable[[int], None],
    share: Share,
    recipe: Recipe,
) -> dict[str, Results]:
    """Results of all models, with earlier ones reused."""
    settings = (size, device, labels, tick, share)
    collect, limits = collects_answers(recipe.task), recipe.generation
    return {
        role: earlier.get(role) or answers.results(module, splits[role], *settings, limits=limits, collect=collect)
        for role, module in modules.items()
    }


def _per_example(split: TestSplit, results: Mapping[str, Results]) -> dict[str, FloatArray]:
    """The weights of the examples, and the results by model."""
    arrays = {"weights.tokens": split.tokens.astype(np.float64), "weights.bytes": split.bytes.astype(np.float64)}
    for role, model_results in results.items():
        arrays |= by_role(role, model_results)
    return arrays


def _write_results(folder: Path, results: Mapping[str, Results], earlier: Mapping[str, Results]) -> None:
    """Write the new results."""
    for role in results.keys() - earlier.keys():
        answers.write(folder, role, results[role])


def _write_measures(
    folder: Path, measures: Measures, per_example: Mapping[str, FloatArray], trivial: Mapping[str, FloatArray]
) -> None:
    (folder / "measures.json").write_text(json.dumps(measures, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    np.savez_compressed(folder / "per_example.npz", allow_pickle=False, **per_example, **trivial)


def _model_measures(path: Path, digest: str, quality: Quality, costs: Costs, speed: Latency) -> ModelMeasures:
    """All measurements of a model, in the order of measures.json."""
    return {
        "digest": digest,
        "parameters": costs.parameters,
        "flops": costs.flops,
        "bytes": weight_bytes(path),
        "metrics": quality["metrics"],
        "intervals": quality["intervals"],
        "calibration": quality["calibration"],
        "latency": speed,
    }


def _groups(split: TestSplit, examples: Path, facts: Facts) -> dict[str, NDArray[np.intp]]:
    """The slices of the test split: its examples' indices by label, or by length."""
    task = evaluated_task(facts["task"])
    if task.LABELLED:
        return by_label(task.targets(examples, "test"), facts["labels"])
    return by_length(split.bytes, "bytes")


def _confusion(results: Results, labels: Sequence[str]) -> Confusion | None:
    counts = results[CONFUSION]
    return {"labels": list(labels), "counts": counts.astype(int).tolist()} if counts.size else None
