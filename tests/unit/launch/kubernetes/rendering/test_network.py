"""The policy of one job against Kubernetes' own type; who reaches whom with it is in tests/manifests."""

from kubernetes import client

from tests.unit.launch.kubernetes.rendered import OWNER, RUN, pytorch, template
from understudy.jobs.specification import JobSpec
from understudy.kube.identity import Identity
from understudy.launch.kubernetes.rendering import network


def test_it_chooses_the_pods_of_its_job_and_is_deleted_with_its_run(three_nodes: JobSpec) -> None:
    policy = network.render(RUN, OWNER)  # type: ignore[arg-type]
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    assert chosen.items() <= template(pytorch(three_nodes))["metadata"]["labels"].items()
    assert policy["metadata"]["ownerReferences"] == [OWNER]
    other_job = Identity(RUN.run, RUN.step, "f" * 64)
    assert not chosen.items() <= other_job.labels.items()
    again = Identity("another-run", RUN.step, RUN.key)
    assert chosen.items() <= again.labels.items(), "a launcher of that run may take the job over"
    assert network.render(again, None)["metadata"]["name"] != policy["metadata"]["name"]


def test_kubernetes_knows_its_fields() -> None:
    spec = network.render(RUN, None)["spec"]
    assert spec.keys() <= set(client.V1NetworkPolicySpec.attribute_map.values())
    assert [rule.keys() for rule in (*spec["ingress"], *spec["egress"])] == [{"from"}, {"to"}]
