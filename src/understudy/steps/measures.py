"""Validation of an evaluation's result: the job that measures runs the models' code, which may tamper with it.

The validation cannot detect whether the numbers are true, only that they are numbers, of these models on these
examples, and nothing else. Facts that need no model are compared: the number of examples and the length of each.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from understudy.evaluate.contents import COMPLETIONS, CONFUSION, MOST_LABELS, Confusion, Measures
from understudy.models.weight_files import weight_bytes
from understudy.recipe import Generation, Recipe
from understudy.recipe.evaluation import GENERATED
from understudy.recipe.roles import STUDENT
from understudy.steps.arrays import Shape, read_arrays, refusal
from understudy.store.files import read_json

if TYPE_CHECKING:
    from understudy.evaluate.metrics import FloatArray
    from understudy.models.facts import Facts

MEASURES, PER_EXAMPLE = "measures.json", "per_example.npz"
FILES = frozenset({MEASURES, PER_EXAMPLE})
LARGEST = 2**24  # maximum bytes of measures.json, most of them slices
ROUNDING = 1e-4  # nats that a prediction's loss may be below 0, from fp32 rounding
PLAIN = re.compile(r"[\w .,()@/+-]{0,200}")
"""The names of a machine's parts: MLflow's pages render them as Markdown."""


@dataclass(frozen=True)
class Completions:
    """The valid completions of a model: their shape (documents x tokens), and the size of the vocabulary."""

    shape: Shape
    vocabulary: int


def checked_measures(
    folder: Path, recipe: Recipe, models: Mapping[str, Path], examples: Path, results: Mapping[str, Path]
) -> Measures:
    """Validate an evaluation's files and return the contents of measures.json.

    Args:
        folder: contains measures.json and per_example.npz.
        recipe: the run's recipe.
        models: the objects of the models, by role; each folder's name is the model's digest.
        examples: the folder of the examples object.
        results: the results file of each role, from the job or the step cache.

    Raises:
        UnderstudyError: a file is missing, or has other contents.
    """
    try:
        measures = _adapter().validate_json(_text(folder / MEASURES), strict=True, extra="forbid")
        _check_identity(measures, recipe, models)
        _check_words(measures, examples)
        facts = read_json(examples / "examples.json")
        labels = _labels(facts)
        weights = _weights(examples, measures["examples"])
        completions = _completions(examples, facts, recipe.generation)
        targets = _targets(examples, recipe.task)
        scored = _scored(recipe, results)
        counts = _check_arrays(folder / PER_EXAMPLE, results, len(labels), completions, targets, scored, *weights)
        _check_scores(folder / PER_EXAMPLE, scored, recipe, examples, measures["reference"])
        _check_confusion(measures["confusion"], labels, counts[STUDENT])
    except FileNotFoundError as error:
        raise refusal(f"{Path(error.filename).name} is missing") from error
    except ValidationError as error:
        first_error = error.errors()[0]
        path = ".".join(str(part) for part in first_error["loc"])
        raise refusal(f"{MEASURES}: {path!a}: {first_error['msg']}") from error
    return measures


def _check_identity(measures: Measures, recipe: Recipe, models: Mapping[str, Path]) -> None:
    """Check that measures are finite and of these models, sizes, precision, task, metric and confidence."""
    from understudy.evaluate.reference import reference_teacher
    from understudy.evaluate.results import CONFIDENCE

    try:
        json.dumps(measures, allow_nan=False)
    except ValueError as error:
        raise refusal(f"{MEASURES}: has a number that is not finite") from error
    if {role: model["digest"] for role, model in measures["models"].items()} != {
        role: path.name for role, path in models.items()
    }:
        raise refusal(f"{MEASURES}: has the measures of other models")
    sizes = {role: weight_bytes(path) for role, path in models.items()}
    if {role: model["bytes"] for role, model in measures["models"].items()} != sizes:
        raise refusal(f"{MEASURES}: gives a model another size than its file has")
    identity = (measures["task"], measures["gate_metric"], measures["confidence"])
    quality = {role: model["metrics"] for role, model in measures["models"].items()}
    if measures["reference"] != reference_teacher(recipe, quality):
        raise refusal(f"{MEASURES}: compares the student with another teacher")
    if measures["hardware"]["precision"] != recipe.evaluate.precision:
        raise refusal(f"{MEASURES}: was measured in another precision")
    if identity != (recipe.task, recipe.gate_metric, CONFIDENCE) or measures["examples"] < 1:
        raise refusal(f"{MEASURES}: has another task, metric or confidence, or no examples")


def _labels(facts: Mapping[str, Any]) -> list[str]:
    """A classifier's labels; empty if there are too many for a confusion matrix."""
    labels = list(facts.get("labels", ()))
    return labels if len(labels) <= MOST_LABELS else []


def _check_confusion(confusion: Confusion | None, labels: list[str], counts: "FloatArray") -> None:
    """Check that the confusion matrix is that of the student's results."""
    expected = {"labels": labels, "counts": counts.astype(int).tolist()} if labels else None
    if confusion != expected:
        raise refusal(f"{MEASURES}: confusion differs from the student's results")


def _text(path: Path) -> bytes:
    if path.stat().st_size > LARGEST:
        raise refusal(f"{MEASURES}: has {path.stat().st_size:,} bytes")
    return path.read_bytes()


def _check_words(measures: Measures, examples: Path) -> None:
    """Check the texts, which pages show: the split and data of the examples, and names of hardware."""
    facts = read_json(examples / "examples.json")
    if measures["split"] != "test" or measures["data"] != {key: facts[key] for key in ("counts", "skipped")}:
        raise refusal(f"{MEASURES}: has another split or other data")
    invalid = [name for name, value in measures["hardware"].items() if not PLAIN.fullmatch(str(value))]
    if invalid:
        raise refusal(f"{MEASURES}: hardware.{invalid[0]} is not a name of hardware")


def _weights(examples: Path, n_examples: int) -> "tuple[FloatArray, FloatArray]":
    """The number of predictions and of bytes of each test example, by the examples object."""
    import numpy as np

    from understudy.evaluate.task import evaluated_task
    from understudy.models.facts import read_facts

    tokens, sizes = evaluated_task(read_facts(examples)["task"]).lengths(examples)
    if len(tokens) != n_examples:
        raise refusal(f"{MEASURES}: has {n_examples} examples, and the test split has {len(tokens)}")
    return tokens.astype(np.float64), sizes.astype(np.float64)


def _targets(examples: Path, task: str) -> "FloatArray | None":
    """The label of each test example, by the examples object; None unless answers are compared with them."""
    import numpy as np

    from understudy.evaluate.metrics import collects_answers
    from understudy.evaluate.task import evaluated_task

    return evaluated_task(task).targets(examples, "test").astype(np.float64) if collects_answers(task) else None


def _check_arrays(
    path: Path,
    results: Mapping[str, Path],
    labels: int,
    completions: Completions,
    targets: "FloatArray | None",
    scored: list[str],
    tokens: "FloatArray",
    sizes: "FloatArray",
) -> "dict[str, FloatArray]":
    """Check per_example.npz against the results files, and return the confusion matrix of each role."""
    import numpy as np

    from understudy.evaluate.metrics import TARGETS
    from understudy.evaluate.quality import TRIVIAL

    sums = _shapes(len(tokens), answers=targets is not None)
    result_shapes = {**sums, COMPLETIONS: completions.shape}
    expected = {f"{role}.{name}": shape for role in results for name, shape in result_shapes.items()}
    expected |= {f"{TRIVIAL}.{name}": shape for name, shape in sums.items()}
    weights = {"weights.tokens": tokens, "weights.bytes": sizes} | ({} if targets is None else {TARGETS: targets})
    expected |= dict.fromkeys(scored, completions.shape[:1])
    per_example = read_arrays(path, dict.fromkeys(weights, tokens.shape) | expected)
    if any(not np.array_equal(per_example[name], values) for name, values in weights.items()):
        raise refusal(f"{PER_EXAMPLE}: has examples of another length or label")
    for role in (*results, TRIVIAL):
        _check_correct(per_example, role, tokens, targets)
    counts = {}
    for role, file in results.items():
        result = read_arrays(file, {**result_shapes, CONFUSION: (labels, labels)})
        if any(
            not np.array_equal(result[name], per_example[f"{role}.{name}"], equal_nan=True) for name in result_shapes
        ):
            raise refusal(f"{PER_EXAMPLE}: differs from {file.name} in the results of {role}")
        ids = result[COMPLETIONS][~np.isnan(result[COMPLETIONS])]
        if np.any((ids < 0) | (ids >= completions.vocabulary) | (ids != np.trunc(ids))):
            raise refusal(f"{file.name}: {COMPLETIONS} has a number that is not a token")
        counts[role] = result[CONFUSION]
        if not np.all(counts[role] >= 0) or np.any(counts[role] % 1) or counts[role].sum() > tokens.sum():
            raise refusal(f"{file.name}: {CONFUSION} is not a count of the predictions by label and answer")
    return counts


def _check_correct(
    per_example: "Mapping[str, FloatArray]", role: str, tokens: "FloatArray", targets: "FloatArray | None"
) -> None:
    """Check the losses and the number of correct predictions of a model, and its answers if they are collected."""
    import numpy as np

    from understudy.evaluate.metrics import ANSWER

    correct, nll = per_example[f"{role}.correct"], per_example[f"{role}.nll"]
    if np.any(correct < 0) or np.any(correct > tokens) or np.any(nll < -ROUNDING * tokens):
        raise refusal(f"{PER_EXAMPLE}: {role} has an impossible loss or number of correct predictions")
    if targets is not None and _contradicts(per_example[f"{role}.{ANSWER}"], targets, correct):
        raise refusal(f"{PER_EXAMPLE}: the answers of {role} contradict the answers counted as correct")


def _contradicts(answers: "FloatArray", targets: "FloatArray", correct: "FloatArray") -> bool:
    """Whether answers are no labels, or equal the targets in other examples than those counted as correct."""
    import numpy as np

    measured = ~np.isnan(answers)
    answers, targets, correct = answers[measured], targets[measured], correct[measured]
    labels = np.all((answers >= 0) & (answers == np.trunc(answers)))
    return not labels or not np.array_equal(answers == targets, correct == 1)


def _scored(recipe: Recipe, roles: Iterable[str]) -> list[str]:
    """The names of the scores of generated answers."""
    from understudy.evaluate.generated_answers import AGREEMENT
    from understudy.evaluate.quality import TRIVIAL

    names = GENERATED.intersection(recipe.metrics)
    return [f"{role}.{name}" for name in names for role in (*roles, TRIVIAL) if (role, name) != (TRIVIAL, AGREEMENT)]


def _check_scores(path: Path, scored: list[str], recipe: Recipe, examples: Path, teacher: str) -> None:
    """Check that the scores of generated answers are those of their tokens."""
    import numpy as np

    from understudy.evaluate.generated_answers import AGREEMENT, Answerable

    if not scored:
        return
    with np.load(path, allow_pickle=False) as arrays:
        per_example = {name: arrays[name] for name in arrays if name in scored or name.endswith(f".{COMPLETIONS}")}
    answerable = Answerable(examples, recipe.generation)
    expected = answerable.scores(per_example, recipe.metrics)
    if AGREEMENT in recipe.metrics:
        expected |= answerable.agreement(per_example, teacher)
    if any(not np.allclose(per_example[name], expected[name], rtol=0, atol=1e-9, equal_nan=True) for name in scored):
        raise refusal(f"{PER_EXAMPLE}: has other scores of generated answers than their tokens")


def _completions(examples: Path, facts: "Facts", limits: Generation) -> Completions:
    from understudy.evaluate.completions import prompts_of

    if "labels" in facts:
        return Completions((0, 0), 0)
    return Completions(prompts_of(examples, facts, limits).shape, facts["vocab_size"])


def _shapes(examples: int, *, answers: bool) -> dict[str, Shape]:
    """The shapes of a model's per-example results."""
    from understudy.evaluate.metrics import ANSWER, BINS

    parts = {f"confidence_{part}": (examples, BINS) for part in ("count", "sum", "correct")}
    return {"nll": (examples,), "correct": (examples,), **parts, **({ANSWER: (examples,)} if answers else {})}


@cache
def _adapter() -> TypeAdapter[Measures]:
    return TypeAdapter(Measures)
