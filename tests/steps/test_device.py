from pathlib import Path
from typing import Any

import pytest

from understudy.launch.kubernetes import settings
from understudy.recipe import Resources
from understudy.recipe.file import load
from understudy.steps import device as module
from understudy.steps import evaluate
from understudy.steps.device import device, threads


def test_models_are_measured_on_what_the_steps_own_pod_has(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(Path("recipes/digits.yaml"), ["resources.distill.pool=gpu"])
    pools = {"gpu": {"gpu": "nvidia.com/gpu"}}
    cluster = settings.Cluster.model_validate({"image": "i", "claim": "c", "pools": pools})
    monkeypatch.setenv(settings.LAUNCHER, "pytorchjob")
    monkeypatch.setattr("understudy.steps.device.cluster_settings", lambda: cluster)
    monkeypatch.setattr(evaluate, "device_here", lambda: "cpu")
    assert device(recipe.resources.distill) == "cuda"
    assert evaluate._device(recipe) == "cpu", "a pod without a GPU evaluates what was trained on GPUs"


@pytest.mark.parametrize(("resources", "expected"), [({}, 7), ({"cpu": "2500m"}, 2), ({"cpu": "100m"}, 1)])
def test_a_single_process_in_a_cluster_takes_the_cores_that_it_asks_for(
    monkeypatch: pytest.MonkeyPatch, resources: dict[str, Any], expected: int
) -> None:
    monkeypatch.setenv(settings.LAUNCHER, "pytorchjob")
    monkeypatch.setattr(module.os, "cpu_count", lambda: 7)
    assert threads(Resources(**resources)) == expected
    assert threads(Resources(**resources, processes=2)) == 1
    assert threads(Resources(**resources, threads=3)) == 3
