"""Pure rules of understudy doctor --cluster; its checks of a real cluster are tested in tests/cluster."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests import ROOT
from understudy.cli.check import Check
from understudy.cli.doctor_accounts import NEEDS
from understudy.cli.doctor_cluster import _lacking, _network, _open_to_all, _operator, _readable, _shut_out
from understudy.kube.api import Kube, Refused
from understudy.kube.kind import PYTORCHJOB, TRAINJOB, JobKind
from understudy.kube.settings import Cluster, Pool

GPU = "nvidia.com/gpu"
LABELS: dict[str, dict[str, str] | None] = {"gpu": {"pool": "gpu"}, "cpu": {"pool": "cpu"}, "bare": {}, "gone": None}


def group(*flavors: str, covered: tuple[str, ...] = ("cpu", GPU)) -> dict[str, Any]:
    return {"coveredResources": list(covered), "flavors": [{"name": name} for name in flavors]}


@pytest.mark.parametrize(
    ("groups", "fix"),
    [
        ([group("gpu")], ""),
        ([group("bare")], ""),
        ([group("cpu", "gpu")], ""),
        ([group("cpu")], "with the pool's labels"),
        ([group("gone")], "with the pool's labels"),
        ([group("cpu", "bare")], "with the pool's labels"),  # the key of the one counts for the other
        ([group("gpu", covered=("cpu",))], f"a quota for {GPU}"),
        ([group("gpu", covered=("cpu",)), group("cpu", covered=(GPU,))], "with the pool's labels"),
        ([], f"a quota for {GPU}"),
    ],
)
def test_a_queue_that_could_admit_no_job_of_a_pool_is_told(groups: list[dict[str, Any]], fix: str) -> None:
    advice = _lacking("q", groups, LABELS, Pool(node_selector={"pool": "gpu"}, gpu=GPU))
    assert advice.startswith("give ClusterQueue q ") if fix else advice == ""
    assert fix in advice


@pytest.mark.parametrize(
    ("gpu", "groups", "ok"),
    [
        (None, [group("bare", covered=("cpu",)), group("gpu", covered=(GPU,))], True),
        (None, [group("gpu", covered=("cpu",))], False),
        (GPU, [group("cpu", covered=("cpu",)), group("gpu", covered=(GPU,))], False),
    ],
)
def test_only_groups_that_a_job_asks_something_of_have_a_say(
    gpu: str | None, groups: list[dict[str, Any]], ok: bool
) -> None:
    pool = Pool(node_selector={"pool": "gpu" if gpu else "cpu"}, gpu=gpu)
    assert (_lacking("q", groups, LABELS, pool) == "") == ok


@pytest.mark.parametrize(
    ("selector", "labels", "fix"),
    [
        ({}, {}, ""),
        ({"matchLabels": {"team": "ml"}}, {"team": "ml", "other": "x"}, ""),
        ({"matchLabels": {"team": "ml"}}, {}, "its namespaceSelector wants team=ml"),
        (None, {"team": "ml"}, "give it a namespaceSelector: without one it takes the jobs of no namespace"),
    ],
)
def test_a_queue_that_takes_no_jobs_of_the_namespace_is_named(
    selector: dict[str, Any] | None, labels: dict[str, str], fix: str
) -> None:
    class Answers(Kube):
        def __init__(self) -> None:
            self.namespace = "here"
            self.core = SimpleNamespace(read_namespace=None)

        def allows(self, *_: object, **__: object) -> bool:
            return True

        def call(self, *_: object, **__: object) -> Any:
            return {"metadata": {"labels": labels}}

    assert _shut_out(Answers(), {"spec": {"namespaceSelector": selector} if selector is not None else {}}) == fix


ROLE = ("Role", "understudy-pipeline")


class Policies(Kube):
    """A namespace with NetworkPolicies."""

    def __init__(self, *names: str) -> None:
        self.namespace, self._names = "here", names

    def has_policy(self, name: str) -> bool:
        return name in self._names


def test_ranks_that_nothing_keeps_from_other_pods_are_told_of_and_runs_can_start() -> None:
    default_deny = _network(Policies("default-deny"))
    assert "no NetworkPolicy ranks: every pod that reaches a rank may speak to it" in default_deny.found
    assert "manifests/overlays" in default_deny.found
    assert default_deny.ok
    check = _network(Policies("ranks"))
    assert check.found.startswith("NetworkPolicy ranks")
    assert check.ok


class Operators(Kube):
    """A cluster with operators, and no TrainingRuntime."""

    def __init__(self, *kinds: JobKind) -> None:
        self.namespace, self._kinds = "here", kinds

    def has(self, kind: JobKind) -> bool:
        return kind in self._kinds

    def training_runtime(self, name: str) -> None:
        del name

    def fields(self, kind: JobKind) -> set[str]:
        return set(kind.fields)


def test_the_operator_that_the_settings_name_has_to_be_there() -> None:
    settings = Cluster(image="i", claim="c", launcher="trainjob")
    [missing] = _operator(Operators(PYTORCHJOB), settings)
    assert missing.what == "trainjobs.trainer.kubeflow.org/v1alpha1"
    assert "install Kubeflow Trainer 2.1" in missing.fix
    installed, runtime = _operator(Operators(PYTORCHJOB, TRAINJOB), settings)
    assert installed.ok
    assert "there is no TrainingRuntime understudy" in runtime.fix
    [absent] = _operator(Operators(PYTORCHJOB), settings.model_copy(update={"launcher": "pytorchjob"}))
    assert absent.ok


def test_the_account_needs_what_its_role_gives() -> None:
    documents = yaml.safe_load_all((ROOT / "manifests" / "base" / "rights.yaml").read_text())
    [rules] = [document["rules"] for document in documents if (document["kind"], document["metadata"]["name"]) == ROLE]
    granted = {(v, g, r) for rule in rules for v in rule["verbs"] for g in rule["apiGroups"] for r in rule["resources"]}
    assert set(NEEDS) == granted


def test_a_right_that_is_missing_to_look_takes_only_its_own_check_away() -> None:
    def refused() -> Iterator[Check]:
        yield Check("queue", "q")
        raise Refused("a permission is missing: localqueues is forbidden")

    first, second = _readable("quotas", refused)
    assert first.ok
    assert (second.what, second.ok) == ("quotas", False)
    assert second.fix == "a permission is missing: localqueues is forbidden"


@pytest.mark.parametrize(
    ("pool", "taints", "default", "warned"),
    [
        (Pool(gpu=GPU), [], None, True),
        (Pool(gpu=GPU), [{"key": GPU, "effect": "NoSchedule"}], None, False),
        (Pool(gpu=GPU), [], "cpu", False),
        (Pool(), [], None, False),
    ],
)
def test_gpu_nodes_that_any_job_may_land_on_are_told(
    pool: Pool, taints: list[dict[str, str]], default: str | None, warned: bool
) -> None:
    cluster = Cluster(image="i", claim="c", pools={"gpu": pool, "cpu": Pool()}, pool=default)
    nodes = [{"metadata": {"name": "gpu-0"}, "spec": {"taints": taints} if taints else {}}]
    assert ("gpu-0 has no taint" in _open_to_all(cluster, pool, nodes)) == warned
