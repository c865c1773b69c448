"""An evaluation's result, checked before it is taken over: who measures runs the models' own code, and may be fooled.

Not whether the numbers are true can be checked, but that they are numbers, of these models, and nothing else.
"""

import json
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from understudy.errors import UnderstudyError
from understudy.evaluate.contents import Measures
from understudy.models.facts import WEIGHTS
from understudy.recipe import Recipe

MEASURES, PER_EXAMPLE = "measures.json", "per_example.npz"
FILES = frozenset({MEASURES, PER_EXAMPLE})


def checked_measures(folder: Path, recipe: Recipe, models: Mapping[str, Path]) -> Measures:
    """What measures.json says.

    Args:
        folder: has it, and per_example.npz.
        recipe: what was to be measured.
        models: the objects that were to be measured, by role; each folder's name is the model's digest.

    Raises:
        UnderstudyError: a file is missing, or holds something else.
    """
    try:
        measures = _adapter().validate_json((folder / MEASURES).read_bytes(), strict=True, extra="forbid")
        _check_said(measures, recipe, models)
        _check_arrays(folder / PER_EXAMPLE, list(models), measures["examples"])
    except FileNotFoundError as error:
        raise _refusal(f"{Path(error.filename).name} is missing") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _refusal(f"{MEASURES}: {place!a}: {first['msg']}") from error
    return measures


def _check_said(measures: Measures, recipe: Recipe, models: Mapping[str, Path]) -> None:
    """Whether measures are of these models, and say of them what whoever holds their files can see."""
    from understudy.evaluate.results import CONFIDENCE

    try:
        json.dumps(measures, allow_nan=False)
    except ValueError as error:
        raise _refusal(f"{MEASURES}: has a number that is not finite") from error
    if {role: model["digest"] for role, model in measures["models"].items()} != {
        role: path.name for role, path in models.items()
    }:
        raise _refusal(f"{MEASURES}: is of other models")
    sizes = {role: (path / WEIGHTS).stat().st_size for role, path in models.items()}
    if {role: model["bytes"] for role, model in measures["models"].items()} != sizes:
        raise _refusal(f"{MEASURES}: says another size of a model than its file has")
    said = (measures["task"], measures["gate_metric"], measures["confidence"])
    if said != (recipe.task, recipe.gate_metric, CONFIDENCE) or measures["examples"] < 1:
        raise _refusal(f"{MEASURES}: is of another task, metric or confidence, or of no examples")


def _check_arrays(path: Path, roles: list[str], examples: int) -> None:
    """Whether the results are numbers, of every model and every example."""
    import numpy as np

    from understudy.evaluate.metrics import BINS
    from understudy.evaluate.quality import TRIVIAL

    one, many = (examples,), (examples, BINS)
    expected: dict[str, tuple[int, ...]] = {"weights.tokens": one, "weights.bytes": one}
    for role in (*roles, TRIVIAL):
        expected |= {f"{role}.nll": one, f"{role}.correct": one}
        expected |= {f"{role}.confidence_{part}": many for part in ("count", "sum", "correct")}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if sorted(arrays.files) != sorted(expected):
                raise _refusal(f"{PER_EXAMPLE}: has other arrays than those of {', '.join(roles)}")
            found = {name: arrays[name] for name in expected}
    except FileNotFoundError:
        raise
    except (ValueError, TypeError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise _refusal(f"{PER_EXAMPLE}: {error}") from error
    for name, array in found.items():
        if array.dtype != np.float64 or array.shape != expected[name]:
            raise _refusal(f"{PER_EXAMPLE}: {name} is {array.dtype} of shape {array.shape}")


@cache
def _adapter() -> TypeAdapter[Measures]:
    return TypeAdapter(Measures)


def _refusal(why: str) -> UnderstudyError:
    return UnderstudyError(
        f"evaluate: {why}. None of it was taken over; look at what the models' own code does, and run again"
    )
