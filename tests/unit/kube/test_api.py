import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import config
from kubernetes.client.exceptions import ApiException

from understudy.errors import UnderstudyError
from understudy.kube.api import Kube, Refused, Unavailable, _readable
from understudy.kube.kind import PYTORCHJOB, TRAINJOB, JobKind
from understudy.kube.objects import KubernetesObject


def error_of(status: int, message: str | None) -> UnderstudyError:
    error = ApiException(status=status, reason="Reason")
    error.body = json.dumps({"message": message}) if message else "not JSON"
    return _readable(error)


@pytest.mark.parametrize(
    ("status", "message", "kind", "expected"),
    [
        (
            403,
            'pods is forbidden: User "u" cannot list resource "pods"',
            Refused,
            "a permission is missing: pods is forbidden",
        ),
        (422, "spec.x: Forbidden", Refused, "the cluster rejected the request: spec.x"),
        (400, 'admission webhook "w" denied the request: no', Refused, "denied the request: no"),
        (500, 'failed calling webhook "w": connection refused', Unavailable, "cannot answer now"),
        (503, None, Unavailable, "cannot answer now (Reason)"),
        (401, "Unauthorized", Refused, "token"),
    ],
)
def test_a_temporary_error_is_distinguished_from_a_refusal(
    status: int, message: str | None, kind: type[UnderstudyError], expected: str
) -> None:
    error = error_of(status, message)
    assert isinstance(error, kind)
    assert expected in str(error)


@pytest.mark.parametrize(
    ("answer", "exists"), [({"metadata": {}}, True), (None, False), (Refused("a right is missing"), True)]
)
def test_a_namespace_exists_unless_the_cluster_denies_it(answer: Any, exists: bool) -> None:
    class Answers(Kube):
        def __init__(self) -> None:
            self.namespace = "here"
            self.core = SimpleNamespace(read_namespace=None)

        def call(self, method: object, *arguments: object, **options: object) -> Any:
            assert arguments == ("here",)
            if isinstance(answer, Exception):
                raise answer
            return answer

    assert Answers().has_namespace() == exists


@pytest.mark.parametrize(
    ("answer", "exists"), [(["pytorchjobs"], True), (["notebooks", "profiles"], False), (None, False)]
)
def test_a_type_exists_when_its_group_lists_it(answer: list[str] | None, exists: bool) -> None:
    class Answers(Kube):
        def __init__(self) -> None:
            self.custom = SimpleNamespace(get_api_resources=None)

        def call(self, method: object, *arguments: object, **options: object) -> Any:
            assert arguments == ("kubeflow.org", "v1")
            return None if answer is None else {"resources": [{"name": name} for name in answer]}

    assert Answers().knows("kubeflow.org", "v1", "pytorchjobs") == exists


@pytest.mark.parametrize(
    ("kind", "messages"), [(PYTORCHJOB, ["of the job"]), (TRAINJOB, ["of the Job that makes its pods"])]
)
def test_the_reason_for_missing_pods_comes_from_the_object_that_creates_them(
    kind: JobKind, messages: list[str]
) -> None:
    class Answers(Kube):
        def __init__(self) -> None:
            self.namespace, self.batch = "here", SimpleNamespace(read_namespaced_job="job")

        def call(self, method: object, *arguments: object, **options: object) -> Any:
            assert (method, arguments) == ("job", ("teacher-1-node-0", "here"))
            return {"metadata": {"name": "teacher-1-node-0"}}

        def events(self, kubernetes_object: KubernetesObject) -> list[KubernetesObject]:
            if kubernetes_object["metadata"]["name"] == "teacher-1":
                return [{"reason": "FailedCreatePod", "message": "of the job"}, {"reason": "Started", "message": "-"}]
            return [{"reason": "FailedCreate", "message": "of the Job that makes its pods"}]

    events = Answers().refusals(kind, {"metadata": {"name": "teacher-1"}})
    assert [event["message"] for event in events] == messages


RESERVED = {"type": "QuotaReserved", "status": "False", "message": "of the condition"}


def pending(message: str, at: str) -> KubernetesObject:
    return {"reason": "Pending", "message": message, "lastTimestamp": at}


@pytest.mark.parametrize(
    ("conditions", "events", "message"),
    [
        ([RESERVED], [pending("of an event", "2026-01-02T00:00:00Z")], "of the condition"),
        ([], [pending("new", "2026-01-02T00:00:00Z"), pending("old", "2026-01-01T00:00:00Z")], "new"),
        ([], [{"reason": "QuotaReserved", "message": "of something else"}], None),
        ([], [], None),
    ],
)
def test_the_reason_for_waiting_comes_from_an_event_when_kueue_could_not_record_it(
    conditions: list[KubernetesObject], events: list[KubernetesObject], message: str | None
) -> None:
    workload = {
        "metadata": {"name": "w", "uid": "2", "ownerReferences": [{"uid": "1"}]},
        "status": {"conditions": conditions},
    }

    class Answers(Kube):
        kueue = "v1beta1"

        def __init__(self) -> None:
            self.namespace = "here"
            self.custom = SimpleNamespace(list_namespaced_custom_object="workloads")
            self.core = SimpleNamespace(list_namespaced_event="events")

        def call(self, method: object, *arguments: object, **options: object) -> Any:
            if method == "workloads":
                return {"items": [workload]}
            assert options == {"field_selector": "involvedObject.name=w,involvedObject.uid=2"}, "names are used again"
            return {"items": events}

    with_reason = Answers().workload_of({"metadata": {"uid": "1"}})
    assert with_reason
    assert [condition["message"] for condition in with_reason["status"]["conditions"]] == ([message] if message else [])


@pytest.mark.parametrize(
    ("served", "used"),
    [(["v1beta1"], "v1beta1"), (["v1beta1", "v1beta2"], "v1beta2"), (["v1beta2"], "v1beta2"), ([], None)],
)
def test_the_newest_version_of_kueues_api_is_used_and_asked_for_once(served: list[str], used: str | None) -> None:
    requests: list[object] = []

    class Answers(Kube):
        def __init__(self) -> None:
            self.namespace = "here"
            self.custom = SimpleNamespace(get_api_resources="types", list_namespaced_custom_object="list")

        def call(self, method: object, *arguments: object, **options: object) -> Any:
            requests.append(arguments)
            if method == "list":
                return {"items": [{"metadata": {"ownerReferences": [{"uid": "1"}]}, "status": {}}]}
            return {"resources": [{"name": "workloads"}]} if arguments[1] in served else None

        def events(self, kubernetes_object: KubernetesObject) -> list[KubernetesObject]:
            del kubernetes_object
            return []

    kube = Answers()
    assert (kube.workload_of({"metadata": {"uid": "1"}}) is None) == (used is None)
    assert kube.kueue == used
    before = len(requests)
    kube.workload_of({"metadata": {"uid": "1"}})
    assert requests[before:] == ([("kueue.x-k8s.io", used, "here", "workloads")] if used else [])


def test_the_fields_of_a_type_are_those_of_its_schema() -> None:
    named = {"x-kubernetes-group-version-kind": [{"group": TRAINJOB.group, "version": "v1alpha1", "kind": "TrainJob"}]}
    spec = {"properties": {"spec": {"properties": {"trainer": {}, "suspend": {}}}}}

    class Answers(Kube):
        def __init__(self, answer: KubernetesObject | None) -> None:
            self.plain, self._answer = SimpleNamespace(call_api=None), answer

        def call(self, method: object, *arguments: object, **options: object) -> Any:
            assert arguments == ("/openapi/v3/apis/trainer.kubeflow.org/v1alpha1", "GET")
            return self._answer

    assert Answers({"components": {"schemas": {"a": {}, "b": named | spec}}}).fields(TRAINJOB) == {"trainer", "suspend"}
    assert Answers(None).fields(TRAINJOB) is None


def test_requests_to_the_api_server_ignore_the_environments_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"name": "here", "cluster": {"server": "https://192.0.2.1:6443"}}
    user, context = {"name": "me", "user": {"token": "t"}}, {"name": "it", "context": {"cluster": "here", "user": "me"}}
    header = {"apiVersion": "v1", "kind": "Config", "current-context": "it"}
    (tmp_path / "config").write_text(
        json.dumps({**header, "clusters": [cluster], "users": [user], "contexts": [context]})
    )
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://192.0.2.2:3128")
    client = Kube("here").core.api_client
    assert client.configuration.host == "https://192.0.2.1:6443"
    assert client.configuration.proxy is None
    assert type(client.rest_client.pool_manager).__name__ == "PoolManager", "a ProxyManager would ask the proxy"
