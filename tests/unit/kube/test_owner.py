from types import SimpleNamespace
from typing import Any, cast

import pytest

from understudy.kube.api import Kube
from understudy.kube.owner import owner_now

WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "digits-x", "uid": "1"}


class Pods:
    """A namespace with one pod of a KFP task."""

    namespace = "here"
    core = SimpleNamespace(read_namespaced_pod=None)

    def __init__(self, owners: tuple[dict[str, Any], ...] = (WORKFLOW,)) -> None:
        self._owners = owners

    def call(self, method: object, pod: str, namespace: str) -> Any:
        owners = [{**owner, "controller": True} for owner in self._owners]
        return {"metadata": {"ownerReferences": owners}} if (pod, namespace) == ("digits-x-7", "here") else None


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "digits-x-7")


def test_behind_a_task_of_kfp_stands_its_workflow() -> None:
    assert owner_now(cast(Kube, Pods())) == WORKFLOW


def test_behind_a_bare_pod_stands_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert owner_now(cast(Kube, Pods(owners=()))) is None
    monkeypatch.setenv("KFP_POD_NAME", "another")
    assert owner_now(cast(Kube, Pods())) is None
