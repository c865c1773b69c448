from pathlib import Path

import pytest

from understudy.launch.kubernetes import settings
from understudy.recipe.file import load
from understudy.steps import evaluate
from understudy.steps.device import device


def test_models_are_measured_on_what_the_steps_own_pod_has(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(Path("recipes/digits.yaml"), ["resources.distill.pool=gpu"])
    pools = {"gpu": {"gpu": "nvidia.com/gpu"}}
    cluster = settings.Cluster.model_validate({"image": "i", "claim": "c", "pools": pools})
    monkeypatch.setenv(settings.LAUNCHER, "pytorchjob")
    monkeypatch.setattr("understudy.steps.device.cluster_settings", lambda: cluster)
    monkeypatch.setattr(evaluate, "device_here", lambda: "cpu")
    assert device(recipe.resources.distill) == "cuda"
    assert evaluate._device(recipe) == "cpu", "a pod without a GPU evaluates what was trained on GPUs"
