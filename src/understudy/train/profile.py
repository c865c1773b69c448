"""The profile of a training: where a step's time went, as each rank leaves it, and as a run keeps it."""

from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

Kind = Literal["data", "teacher", "forward", "backward", "optimizer", "communication", "other"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Communication is what is sent while nothing is computed, other what has no mark."""
LARGEST_TRACE = 64 * 2**20
"""Bytes of a rank's trace that MLflow gets."""

Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e24, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Name = Annotated[str, Field(max_length=200)]


class RankProfile(TypedDict):
    """What a rank found; seconds, FLOP and targets are a step's, in the mean."""

    rank: Count
    world_size: Count
    device: Name
    """`cpu`, or the GPU's name."""
    precision: Name
    """Of matrix products: fp32, bf16 or fp16."""
    first_step: Count
    """The first that was recorded, counted from 1."""
    steps: Count
    """How many were recorded."""
    seconds: Seconds
    """Of the steps just before, which nobody recorded."""
    recorded_seconds: Seconds
    kinds: dict[Kind, Seconds]
    """They add up to recorded_seconds."""
    sent: Seconds
    """In which something was sent, whether something was computed meanwhile or not."""
    flop: Amount
    """Of products of matrices, convolutions and attention; what is computed twice counts twice."""
    targets: Amount
    """Images or tokens, over all ranks."""


class Profile(TypedDict):
    """What a run keeps of a training; of seconds the mean over ranks and steps."""

    world_size: int
    device: str
    precision: str
    first_step: int
    steps: int
    seconds: float
    recorded_seconds: float
    kinds: dict[Kind, float]
    sent: float
    slowest: int
    """The rank that the others wait for: it is the one that spends most on anything but communication."""
    slowest_kinds: dict[Kind, float]
    targets_per_second: float
    flop: float
    """Over all ranks."""
    mfu: float | None
    """FLOP over what all ranks could compute in `seconds`: model FLOPs utilization (Chowdhery et al. 2022)."""
    no_mfu: str
    """Why there is none."""


RANK_PROFILE = TypeAdapter(RankProfile)
