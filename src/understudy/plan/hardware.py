"""Kinds of hardware: memory, speed, links and price, from a table that a file may replace."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, TypeAdapter, ValidationError, field_validator

from understudy.errors import InputError
from understudy.recipe.errors import reason
from understudy.recipe.section import Section

TERA = 1e12
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Hardware(Section):
    """One kind of GPU, or a CPU, per process."""

    memory: Amount
    """GiB."""
    tflops: dict[str, Amount]
    """By supported precision, fp32 among them."""
    link: Amount
    """GB/s to processes on the same node, one way."""
    network: Amount
    """GB/s to processes on other nodes."""
    price: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """USD per hour."""
    host: Amount = 2.0
    """GiB of its node's memory that a process takes beside tensors: Python, libraries, and on GPUs CUDA and NCCL."""

    @field_validator("tflops")
    @classmethod
    def _has_fp32(cls, tflops: dict[str, float]) -> dict[str, float]:
        if "fp32" not in tflops:
            raise ValueError("has no fp32, which all hardware supports")
        return tflops

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, with a CUDA context beside the tensors: more than 1 TFLOPS in some precision."""
        return max(self.tflops.values()) > 1


def table(path: Path | None = None) -> dict[str, Hardware]:
    """Kinds of hardware by name.

    Args:
        path: a file in the form of hardware.yaml, which is the default.

    Raises:
        InputError: the file cannot be read, or is no such table.
    """
    source = path or files("understudy.plan") / "hardware.yaml"
    try:
        return TypeAdapter(dict[str, Hardware]).validate_python(yaml.safe_load(source.read_text(encoding="utf-8")))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        text = "; ".join(": ".join([*map(str, problem["loc"]), reason(problem)]) for problem in problems)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        text = str(error).splitlines()[0]
    raise InputError(f"{path}: is not a table of hardware ({text}); see `understudy plan --help`")
