"""Where no storage class gives a volume to several nodes: all pods that mount the store share one."""

import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.launched import SETTINGS, Launcher, kubectl, recipe, wait
from understudy.errors import InputError
from understudy.kube.api import Kube
from understudy.kube.settings import parsed
from understudy.recipe import Recipe
from understudy.runs import submission

pytestmark = pytest.mark.cluster
Launch = Callable[..., Launcher]


@pytest.fixture
def claim(kube: Kube) -> Iterator[str]:
    """A claim that is ReadWriteOnce."""
    name = f"for-one-node-{secrets.token_hex(2)}"  # one of that name may still be going
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim_object = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
    kubectl("apply", "-f", "-", text=json.dumps(claim_object))
    yield name
    kubectl("delete", "pvc", name, "--wait=false")


def on_one_node(**changes: Any) -> dict[str, Any]:
    values = recipe(nodes=1, train={"steps": 60, "strategy": "single"}, **changes)
    values["resources"]["distill"] = {"pool": "gpu"}
    return values


def test_all_pods_that_mount_a_claim_for_one_node_are_there(launch: Launch, claim: str) -> None:
    settings = {"claim": claim, "one_node": True}
    runs = [launch(on_one_node(seed=seed), settings) for seed in range(2)]
    node_of: dict[str, str] = {}

    def all_were_seen() -> bool:
        for pod in (pod for run in runs for pod in (*run.pods(), *run.workers())):
            if node := pod["spec"].get("nodeName"):
                node_of[pod["metadata"]["name"]] = node
        return len(node_of) == 4

    wait(all_were_seen)
    assert len(set(node_of.values())) == 1
    assert set(node_of.values()) < {"gpu-0", "gpu-1"}
    assert [run.ends() for run in runs] == [0, 0], "\n".join(run.output() for run in runs)


def test_limits_of_a_claim_for_one_node_are_reported_before_anything_is_submitted(kube: Kube, claim: str) -> None:
    def check(values: dict[str, Any], **settings: Any) -> None:
        submission.check(kube, parsed({**SETTINGS, "claim": claim, **settings}, "test"), Recipe.model_validate(values))

    check(on_one_node(), one_node=True)
    with pytest.raises(
        InputError, match=r"for-one-node-\w+: is ReadWriteOnce; .* set one_node .*UNDERSTUDY_REMOTE_CACHE=s3:"
    ):
        check(on_one_node())
    with pytest.raises(InputError, match=r"resources\.teacher\.nodes: 2; .* set it to 1"):
        check(recipe(), one_node=True)
    with pytest.raises(InputError, match=r"^resources\.teacher\.pool, resources\.distill\.pool: differ"):
        check(recipe(nodes=1), one_node=True)
