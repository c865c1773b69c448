"""Cached logits in a cluster: written by the ranks of a job, and read by the students of two runs."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.launched import BOTH, Launcher, recipe

pytestmark = pytest.mark.cluster


def two_teachers(width: int) -> dict[str, Any]:
    """A student of two teachers, the logits of one of which are cached by two nodes."""
    values = recipe(train={"steps": 20}, kwargs={"pause": 0.0})
    wide = {**values.pop("teacher"), "logits": {"type": "top_k", "k": 4}}
    narrow = {"model": {"factory": "slow_model:build", "kwargs": {"width": 24}}, "train": {"steps": 5}}
    values["teachers"] = {"wide": wide, "narrow": narrow}
    values["student"]["model"]["kwargs"]["width"] = width
    values["resources"]["evaluate"] = {**values["resources"]["distill"], "nodes": 2, "pool": "gpu", "device": "cpu"}
    values["resources"]["teachers"] = {"narrow": values["resources"]["distill"]}
    return values


def digests(launcher: Launcher) -> dict[str, str]:
    """The results of its steps."""
    assert launcher.ends(300) == 0, launcher.output()
    return dict(re.findall(r"^([a-z-]+) ([0-9a-f]{64})$", launcher.output(), re.MULTILINE))


@BOTH
def test_two_students_share_the_cached_logits_of_one_of_two_teachers(launch: Callable[..., Launcher]) -> None:
    first = digests(launch(two_teachers(8), last="distill"))
    second = digests(launch(two_teachers(12), last="distill"))
    assert first.keys() >= {"wide", "narrow", "logits-wide", "distill"}
    assert first["logits-wide"] == second["logits-wide"]
    assert first["distill"] != second["distill"]
