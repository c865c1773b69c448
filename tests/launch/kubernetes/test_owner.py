from types import SimpleNamespace
from typing import Any, cast

import pytest

from understudy.launch.kubernetes import owner
from understudy.launch.kubernetes.api import Away, Kube
from understudy.launch.kubernetes.owner import owner_now, owner_reference

WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "digits-x", "uid": "1"}


class Pods:
    """A namespace with one pod of a KFP task, which answers from the second question on."""

    namespace = "here"
    core = SimpleNamespace(read_namespaced_pod=None)

    def __init__(self, away: int = 0, owners: tuple[dict[str, Any], ...] = (WORKFLOW,)) -> None:
        self._away, self._owners = away, owners

    def ask(self, question: object, pod: str, namespace: str) -> Any:
        self._away -= 1
        if self._away >= 0:
            raise Away("nobody answers")
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


def test_an_api_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "ASK", 0.0)
    watched: list[int] = []
    assert owner_reference(cast(Kube, Pods(away=2)), lambda: watched.append(1)) == WORKFLOW
    assert len(watched) == 3
    with pytest.raises(Away):
        owner_now(cast(Kube, Pods(away=1)))
