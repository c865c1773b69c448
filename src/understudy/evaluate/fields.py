"""Values of measures.json as the gate reads them: anything but a mapping or a finite number counts as not measured."""

import math
import sys
from collections.abc import Mapping
from typing import Any


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def number(value: Any) -> float | None:
    """A finite number, not negative; None for anything else, which counts as not measured."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
