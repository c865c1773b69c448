"""One specification, three launchers: the same world, and one method."""

import inspect

from tests.unit.jobs.specs import on_the_claim
from tests.unit.launch.kubernetes.rendered import pod, pytorch, trainer
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes.launcher import KubernetesLauncher
from understudy.launch.launcher import Launcher
from understudy.launch.local.launcher import LocalLauncher


def test_both_operators_start_the_same_command_with_the_same_world(three_nodes: JobSpec) -> None:
    operator, ranks = pytorch(three_nodes), trainer(three_nodes)["spec"]["trainer"]
    node_agent = ["python", "-m", "understudy.agent.node", str(on_the_claim(three_nodes).path)]
    assert pod(operator)["containers"][0]["command"] == ranks["command"] == node_agent
    policy = operator["spec"]["elasticPolicy"]
    assert policy["minReplicas"] == policy["maxReplicas"] == ranks["numNodes"] == three_nodes.nodes
    assert operator["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == three_nodes.nodes
    assert policy["nProcPerNode"] == ranks["numProcPerNode"] == three_nodes.processes


def test_a_launcher_has_one_method() -> None:
    for launcher in (LocalLauncher, KubernetesLauncher):
        assert inspect.signature(launcher.run) == inspect.signature(Launcher.run)
        assert [name for name, value in vars(launcher).items() if callable(value) and name[0] != "_"] == ["run"]
