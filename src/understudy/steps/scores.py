"""Validation of a benchmark's result: the job that scores runs the models' code, which may tamper with it.

As for measures.json, the validation cannot detect whether the numbers are true.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from understudy.errors import UnderstudyError
from understudy.evaluate.benchmark_scores import CONTENTS, Benchmarks, ModelScores
from understudy.recipe import Recipe

LARGEST = 2**24  # maximum bytes of benchmarks.json
NAME = re.compile(r"[\w@.+-]{1,100}")
"""Names of metrics and filters: they become those of metrics in MLflow."""
VERSION = re.compile(r"[0-9][0-9a-z.+-]{0,30}")


def checked_scores(path: Path, recipe: Recipe, models: Mapping[str, Path]) -> Benchmarks:
    """Validate benchmarks.json, and return its content.

    Args:
        path: the file.
        recipe: the run's.
        models: the objects of the models, by role; each folder's name is the model's digest.

    Raises:
        UnderstudyError: there is no such file, or it has other contents.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise _refusal(f"has {path.stat().st_size:,} bytes")
        scores = _adapter().validate_json(path.read_bytes(), strict=True, extra="forbid")
        json.dumps(scores, allow_nan=False)
    except FileNotFoundError as error:
        raise _refusal("is missing") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise _refusal(f"{'.'.join(map(str, first['loc']))!a}: {first['msg']}") from error
    except ValueError as error:
        raise _refusal("has a number that is not finite") from error
    if {role: model["digest"] for role, model in scores["models"].items()} != {
        role: folder.name for role, folder in models.items()
    }:
        raise _refusal("has the scores of other models")
    _check_tasks(scores, recipe)
    return scores


def _check_tasks(scores: Benchmarks, recipe: Recipe) -> None:
    """Check that all models have the same metrics of the recipe's tasks, and that names are names."""
    settings = recipe.evaluate.lm_eval
    assert settings is not None
    names = list(settings.tasks)
    if list(scores["tasks"]) != names or any(list(model["tasks"]) != names for model in scores["models"].values()):
        raise _refusal("has other tasks")
    if not VERSION.fullmatch(scores["lm_eval"]) or scores["chat_template"] != recipe.takes("data.chat"):
        raise _refusal("has another version of lm-eval, or other prompts")
    for name, facts in scores["tasks"].items():
        if (
            facts["examples"] < 1
            or facts["num_fewshot"] < 0
            or facts["examples"] > (settings.limit or facts["examples"])
        ):
            raise _refusal(f"{name}: has an impossible number of documents")
        measured = [_metrics(model, name) for model in scores["models"].values()]
        if not measured[0] or any(metrics != measured[0] for metrics in measured):
            raise _refusal(f"{name}: has other metrics for some models")
        if any(metric not in facts["higher_is_better"] for metric, _ in measured[0]):
            raise _refusal(f"{name}: does not say whether higher is better")
        if not all(NAME.fullmatch(word) for pair in measured[0] for word in pair):
            raise _refusal(f"{name}: has a metric without a proper name")


def _metrics(model: ModelScores, task: str) -> list[tuple[str, str]]:
    return [(score["metric"], score["filter"]) for score in model["tasks"][task]]


def _refusal(why: str) -> UnderstudyError:
    return UnderstudyError(
        f"benchmark: {CONTENTS}: {why}. The result was discarded; check the models' own code, and run again"
    )


@cache
def _adapter() -> TypeAdapter[Benchmarks]:
    return TypeAdapter(Benchmarks)
