"""An evaluation's result, checked before it is taken over: who measures runs the models' own code, and may be fooled.

Not whether the numbers are true can be checked, but that they are numbers, of these models on these examples, and
nothing else. What is known without a model is compared: how many examples there are, and how long each of them is.
"""

import json
import math
import re
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from understudy.errors import UnderstudyError
from understudy.evaluate.contents import Measures
from understudy.models.weight_files import weight_bytes
from understudy.recipe import Recipe
from understudy.store.files import read_json

if TYPE_CHECKING:
    from understudy.evaluate.metrics import FloatArray

MEASURES, PER_EXAMPLE = "measures.json", "per_example.npz"
FILES = frozenset({MEASURES, PER_EXAMPLE})
LARGEST = 2**24  # bytes of measures.json, of which slices are the most
ROUNDING = 1e-4  # nats that a prediction may be below 0, as fp32 rounds
HEADER = 2**16  # bytes before an array in its file, at most
PLAIN = re.compile(r"[\w .,()@/+-]{0,200}")
"""What a machine's part is called: these words stand in MLflow's pages, which read them as Markdown."""


def checked_measures(folder: Path, recipe: Recipe, models: Mapping[str, Path], examples: Path) -> Measures:
    """What measures.json says.

    Args:
        folder: has it, and per_example.npz.
        recipe: what was to be measured.
        models: the objects that were to be measured, by role; each folder's name is the model's digest.
        examples: the folder of the examples object that they were to be measured on.

    Raises:
        UnderstudyError: a file is missing, or holds something else.
    """
    try:
        measures = _adapter().validate_json(_text(folder / MEASURES), strict=True, extra="forbid")
        _check_said(measures, recipe, models)
        _check_words(measures, examples)
        _check_arrays(folder / PER_EXAMPLE, list(models), *_weights(examples, measures["examples"]))
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
    sizes = {role: weight_bytes(path) for role, path in models.items()}
    if {role: model["bytes"] for role, model in measures["models"].items()} != sizes:
        raise _refusal(f"{MEASURES}: says another size of a model than its file has")
    if confusion := measures["confusion"]:
        counts = [count for row in confusion["counts"] for count in row]
        sides = {len(confusion["labels"]), len(confusion["counts"]), *map(len, confusion["counts"])}
        if len(sides) != 1 or min(counts, default=-1) < 0 or sum(counts) > measures["examples"]:
            raise _refusal(f"{MEASURES}: confusion is no count of the examples by label and answer")
    said = (measures["task"], measures["gate_metric"], measures["confidence"])
    if said != (recipe.task, recipe.gate_metric, CONFIDENCE) or measures["examples"] < 1:
        raise _refusal(f"{MEASURES}: is of another task, metric or confidence, or of no examples")


def _text(path: Path) -> bytes:
    if path.stat().st_size > LARGEST:
        raise _refusal(f"{MEASURES}: has {path.stat().st_size:,} bytes")
    return path.read_bytes()


def _check_words(measures: Measures, examples: Path) -> None:
    """Whether the texts are what a page may show: those of the examples, and names of machines."""
    described = read_json(examples / "examples.json")
    if measures["split"] != "test" or measures["data"] != {key: described[key] for key in ("counts", "skipped")}:
        raise _refusal(f"{MEASURES}: is of another split or other data")
    odd = [name for name, value in measures["hardware"].items() if not PLAIN.fullmatch(str(value))]
    if odd:
        raise _refusal(f"{MEASURES}: hardware.{odd[0]} is no name of a machine's part")


def _weights(examples: Path, said: int) -> "tuple[FloatArray, FloatArray]":
    """Predictions and bytes of each example of the test split, as the examples have them."""
    import numpy as np

    if (examples / "test.offsets.npy").exists():
        tokens = np.diff(np.load(examples / "test.offsets.npy"))
        sizes = np.load(examples / "test.bytes.npy")
    else:
        tokens = np.ones(len(np.load(examples / "test.labels.npy", mmap_mode="r")))
        sizes = np.zeros(len(tokens))
    if len(tokens) != said:
        raise _refusal(f"{MEASURES}: is about {said} examples, and the test split has {len(tokens)}")
    return tokens.astype(np.float64), sizes.astype(np.float64)


def _check_arrays(path: Path, roles: list[str], tokens: "FloatArray", sizes: "FloatArray") -> None:
    """Whether the results are numbers, of every model and every example."""
    import numpy as np

    from understudy.evaluate.metrics import BINS
    from understudy.evaluate.quality import TRIVIAL

    one, many = (len(tokens),), (len(tokens), BINS)
    expected: dict[str, tuple[int, ...]] = {"weights.tokens": one, "weights.bytes": one}
    for role in (*roles, TRIVIAL):
        expected |= {f"{role}.nll": one, f"{role}.correct": one}
        expected |= {f"{role}.confidence_{part}": many for part in ("count", "sum", "correct")}
    try:
        _check_sizes(path, expected)
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
    if not np.array_equal(found["weights.tokens"], tokens) or not np.array_equal(found["weights.bytes"], sizes):
        raise _refusal(f"{PER_EXAMPLE}: is of examples of another length")
    for role in (*roles, TRIVIAL):
        right, nll = found[f"{role}.correct"], found[f"{role}.nll"]
        if np.any(right < 0) or np.any(right > tokens) or np.any(nll < -ROUNDING * tokens):
            raise _refusal(f"{PER_EXAMPLE}: {role} is right more often than it was asked")


def _check_sizes(path: Path, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Whether no array takes more than it should: a few bytes of an archive may stand for any number of them."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            shape = expected.get(entry.filename.removesuffix(".npy"), ())
            if entry.file_size > HEADER + 8 * math.prod(shape):
                raise _refusal(f"{PER_EXAMPLE}: {entry.filename!a} has {entry.file_size:,} bytes")


@cache
def _adapter() -> TypeAdapter[Measures]:
    return TypeAdapter(Measures)


def _refusal(why: str) -> UnderstudyError:
    return UnderstudyError(
        f"evaluate: {why}. None of it was taken over; look at what the models' own code does, and run again"
    )
