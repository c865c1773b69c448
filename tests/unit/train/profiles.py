"""Profiles for tests."""

from typing import Any, cast

from understudy.train.profile import KINDS, Profile, RankProfile

SECONDS = (0.01, 0.0, 0.02, 0.05, 0.01, 0.005, 0.005)
"""Of each kind in turn."""


COMMON: dict[str, Any] = {
    "world_size": 2,
    "device": "cpu",
    "precision": "fp32",
    "first_step": 9,
    "steps": 5,
    "seconds": 0.08,
    "recorded_seconds": 0.1,
    "kinds": dict(zip(KINDS, SECONDS, strict=True)),
    "sent": 0.02,
}
"""A step of 0.1 s when it is recorded, and of 0.08 s otherwise."""


def rank_profile(rank: int = 0, **changes: Any) -> RankProfile:
    """The profile of one of two ranks."""
    return cast(RankProfile, {**COMMON, "rank": rank, "flop": 4e9, "targets": 640.0, **changes})


def profile(**changes: Any) -> Profile:
    """A run's profile of two such ranks."""
    run_figures = {
        "slowest": 1,
        "slowest_kinds": COMMON["kinds"],
        "targets_per_second": 8000.0,
        "flop": 8e9,
        "mfu": None,
        "no_mfu": "the peak speed of this CPU is not known",
    }
    return cast(Profile, {**COMMON, **run_figures, **changes})
