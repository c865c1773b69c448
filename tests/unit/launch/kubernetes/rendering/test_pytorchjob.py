import pytest

from tests.unit.launch.kubernetes.rendered import CLUSTER, OWNER, pytorch
from understudy.jobs.specification import JobSpec


def test_a_job_has_workers_only_so_that_no_init_container_is_added(three_nodes: JobSpec) -> None:
    assert list(pytorch(three_nodes)["spec"]["pytorchReplicaSpecs"]) == ["Worker"]


@pytest.mark.parametrize(("requested", "default", "queue"), [(None, None, None), (None, "a", "a"), ("b", "a", "b")])
def test_a_queued_job_begins_suspended(
    three_nodes: JobSpec, requested: str | None, default: str | None, queue: str | None
) -> None:
    job = pytorch(three_nodes, CLUSTER.model_copy(update={"queue": default}), queue=requested)
    assert job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == queue
    assert job["spec"]["runPolicy"].get("suspend") == (True if queue else None)


def test_a_job_goes_with_its_owner(three_nodes: JobSpec) -> None:
    assert pytorch(three_nodes)["metadata"]["ownerReferences"] == [OWNER]
