"""understudy doctor --collectives on a cluster: two nodes that reduce with gloo, and nothing that stays."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.launched import SETTINGS, kubectl, wait
from understudy.kube.api import Kube
from understudy.kube.kind import PYTORCHJOB
from understudy.kube.settings import CONFIG, parsed
from understudy.recipe import Resources
from understudy.runs import collectives

pytestmark = pytest.mark.cluster
LINE = re.compile(r" *(\d+) (KiB|MiB) +([\d.]+) ms +([\d.]+) GB/s +([\d.]+) GB/s")
PAGES = {"spec": {"volumes": [{"name": "more", "emptyDir": {}}], "containers": []}}
MOUNTED = {"name": "pytorch", "volumeMounts": [{"name": "more", "mountPath": "/more"}]}


@pytest.fixture
def pool(kube: Kube) -> Iterator[dict[str, object]]:
    """Settings whose pool has no GPUs, so that ranks use gloo, and a patch that the API server has to take."""
    del kube
    gpu = {name: value for name, value in SETTINGS["pools"]["gpu"].items() if name != "gpu"}
    patch = {
        "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {**PAGES["spec"], "containers": [MOUNTED]},
    }
    values = {**SETTINGS, "pools": {"nodes": {**gpu, "pod_patch": patch}}}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG}}
    kubectl("apply", "-f", "-", text=json.dumps({**config_map, "data": {"cluster.yaml": yaml.safe_dump(values)}}))
    yield values
    kubectl("delete", "configmap", CONFIG, "--ignore-not-found")


def test_two_nodes_reduce_buffers_of_all_sizes_and_nothing_stays(kube: Kube, pool: dict[str, object]) -> None:
    lines: list[str] = []
    resources = Resources(pool="nodes", nodes=2)
    assert collectives.measure(kube, parsed(pool, "test"), resources, lines.append) == 0, lines
    rows = [match for match in map(LINE.fullmatch, lines) if match]
    assert [f"{row[1]} {row[2]}" for row in rows] == ["8 KiB", "64 KiB", "512 KiB", "4 MiB", "32 MiB", "256 MiB"]
    assert all(float(row[4]) == float(row[5]) for row in rows), "between two ranks busbw is algbw"
    wait(lambda: not kube.jobs(PYTORCHJOB, "understudy.step=collectives"))
    wait(lambda: not kube.pods("understudy.step=collectives"))
