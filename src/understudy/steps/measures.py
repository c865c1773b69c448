"""An evaluation's result, checked before it is taken over: who measures runs the models' own code, and may be fooled.

Not whether the numbers are true can be checked, but that they are numbers, of these models, and nothing else.
"""

import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from understudy.errors import UnderstudyError
from understudy.evaluate.contents import Measures

MEASURES, PER_EXAMPLE = "measures.json", "per_example.npz"
FILES = frozenset({MEASURES, PER_EXAMPLE})
NOT_A_MODELS = frozenset({"weights", "trivial"})
"""What else has arrays per example."""


def checked_measures(folder: Path, digests: Mapping[str, str]) -> Measures:
    """What measures.json says.

    Args:
        folder: has it, and per_example.npz.
        digests: of the models that were to be measured, by role.

    Raises:
        UnderstudyError: a file is missing, or holds something else.
    """
    try:
        measures = _adapter().validate_json((folder / MEASURES).read_bytes(), strict=True, extra="forbid")
        _check_arrays(folder / PER_EXAMPLE, digests, measures["examples"])
    except FileNotFoundError as error:
        raise _refusal(f"{Path(error.filename).name} is missing") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise _refusal(f"{MEASURES}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
    except (ValueError, zipfile.BadZipFile, EOFError) as error:  # of numpy, which refuses pickled objects too
        raise _refusal(f"{PER_EXAMPLE}: {error}") from error
    measured = {role: model["digest"] for role, model in measures["models"].items()}
    if measured != digests:
        raise _refusal(f"{MEASURES}: is of other models")
    return measures


def _check_arrays(path: Path, digests: Mapping[str, str], examples: int) -> None:
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        roles = {name.partition(".")[0] for name in arrays.files}
        if roles != digests.keys() | NOT_A_MODELS:
            raise _refusal(f"{PER_EXAMPLE}: is of {', '.join(sorted(roles))}")
        for name in arrays.files:
            array = arrays[name]
            if array.dtype != np.float64 or array.shape[:1] != (examples,):
                raise _refusal(f"{PER_EXAMPLE}: {name} is {array.dtype} of shape {array.shape}")


@cache
def _adapter() -> TypeAdapter[Measures]:
    return TypeAdapter(Measures)


def _refusal(why: str) -> UnderstudyError:
    return UnderstudyError(
        f"evaluate: {why}. None of it was taken over; look at what the models' own code does, and run again"
    )
