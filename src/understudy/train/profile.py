"""The profile of a training: the time of a step by kind, as each rank writes it, and as a run stores it."""

from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

Kind = Literal["data", "teacher", "forward", "backward", "optimizer", "communication", "other"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""`communication` is time in which data is sent and nothing computed, `other` has no mark."""
LARGEST_TRACE = 64 * 2**20
"""Bytes of the largest trace that is sent to MLflow."""

Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e24, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Name = Annotated[str, Field(max_length=200)]


class RankProfile(TypedDict):
    """One rank's measurements; seconds, FLOP and targets are means per step."""

    rank: Count
    world_size: Count
    device: Name
    """`cpu`, or the GPU's name."""
    precision: Name
    """Type of matrix multiplications: fp32, bf16 or fp16."""
    first_step: Count
    """The first recorded step, counted from 1."""
    steps: Count
    """Number of recorded steps."""
    seconds: Seconds
    """Duration of the steps just before, which were not recorded."""
    recorded_seconds: Seconds
    kinds: dict[Kind, Seconds]
    """They add up to recorded_seconds."""
    sent: Seconds
    """Time in which data was sent, whether or not something was computed meanwhile."""
    flop: Amount
    """Of matrix multiplications, convolutions and attention; recomputation counts, too."""
    targets: Amount
    """Images or tokens, over all ranks."""


class Profile(TypedDict):
    """A run's profile of a training; seconds are means over ranks and steps."""

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
    """The rank that the others wait for: it spends the most time on anything but communication."""
    slowest_kinds: dict[Kind, float]
    targets_per_second: float
    flop: float
    """Over all ranks."""
    mfu: float | None
    """Model FLOPs utilization (Chowdhery et al. 2022): FLOP over the peak of all ranks in `seconds`."""
    no_mfu: str
    """The reason if there is none."""


RANK_PROFILE = TypeAdapter(RankProfile)
