"""Requests to the Kubernetes API: one connection, readable errors (Unavailable, Refused)."""

import json
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from understudy.errors import InputError, UnderstudyError
from understudy.kube.kind import TRAINJOB, JobKind
from understudy.kube.objects import KubernetesObject
from understudy.kube.operators import KUEUE, SERVED

SECONDS = 10  # timeout of a request
AGAIN = 1.5  # seconds between two requests to an API server that is away
NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Answer = TypeVar("Answer")


class Unavailable(UnderstudyError):
    """The API server, or a webhook that it calls, does not answer now; it may later."""


class Refused(UnderstudyError):
    """The API server refused: a right is missing, or the request is not accepted."""


class Kube:
    """One namespace of one cluster."""

    def __init__(self, namespace: str | None = None) -> None:
        self._connect()
        self.namespace = namespace or self._default_namespace()

    def _connect(self) -> None:
        try:
            config.load_incluster_config() if NAMESPACE.exists() else config.load_kube_config()
        except config.ConfigException as error:
            raise InputError(f"no cluster is configured: {error}; set KUBECONFIG") from error
        api = client.ApiClient()
        self.core, self.custom, self.batch = client.CoreV1Api(api), client.CustomObjectsApi(api), client.BatchV1Api(api)
        self.plain = api
        self.networking = client.NetworkingV1Api(api)

    def _default_namespace(self) -> str:
        if NAMESPACE.exists():
            return NAMESPACE.read_text().strip()
        _, active = config.list_kube_config_contexts()
        return str(active["context"].get("namespace", "default"))

    def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The response as plain JSON; None if the object does not exist.

        Raises:
            Unavailable: the API server does not answer.
            Refused: the API server refuses the request.
        """
        try:
            try:
                answer = method(*arguments, **options, _request_timeout=SECONDS, _preload_content=False)
            except ApiException as error:
                if error.status != 401:
                    raise
                self._connect()  # a token is valid for an hour; the mounted file has the next one
                again = getattr(getattr(self, _owner(method)), method.__name__)
                answer = again(*arguments, **options, _request_timeout=SECONDS, _preload_content=False)
            return json.loads(answer.data)
        except ApiException as error:
            if error.status == 404:
                return None
            raise _readable(error) from error
        except (HTTPError, OSError, ValueError) as error:  # ValueError: a truncated response
            raise Unavailable(f"the API server does not answer ({type(error).__name__})") from error

    def has_namespace(self) -> bool:
        """Whether the namespace exists, or may not be read: a list in a missing namespace is empty, too."""
        try:
            return self.call(self.core.read_namespace, self.namespace) is not None
        except Refused:
            return True

    def has_policy(self, name: str) -> bool:
        """Whether the namespace has a NetworkPolicy of this name."""
        return self.call(self.networking.read_namespaced_network_policy, name, self.namespace) is not None

    def create_policy(self, policy: KubernetesObject) -> None:
        """Create a NetworkPolicy; an existing one of the same name is equivalent."""
        self._create(self.networking.create_namespaced_network_policy, self.namespace, policy)

    # Jobs and their pods

    def job(self, kind: JobKind, name: str) -> KubernetesObject | None:
        """A training job."""
        job_object: KubernetesObject | None = self.call(
            self.custom.get_namespaced_custom_object, *self._jobs(kind), name
        )
        return job_object

    def jobs(self, kind: JobKind, selector: str) -> list[KubernetesObject]:
        """Training jobs with these labels.

        Raises:
            InputError: the cluster does not have this type.
        """
        response = self.call(self.custom.list_namespaced_custom_object, *self._jobs(kind), label_selector=selector)
        if response is None:
            raise InputError(kind.missing)
        return list(response["items"])

    def create_job(self, kind: JobKind, job: KubernetesObject) -> KubernetesObject | None:
        """Submit a training job and return the created object; None if an equivalent one of the same name exists."""
        return self._create(self.custom.create_namespaced_custom_object, *self._jobs(kind), job)

    def create_event(self, event: KubernetesObject) -> None:
        """Report an event of an object, unless one of the same name exists."""
        self._create(self.core.create_namespaced_event, self.namespace, event)

    def _create(self, request: Callable[..., Any], *arguments: Any) -> KubernetesObject | None:
        """The created object; None if one of the same name exists."""
        try:
            created: KubernetesObject | None = self.call(request, *arguments)
            return created
        except Refused as error:
            if "AlreadyExists" not in str(error.__cause__):
                raise
            return None

    def change_job(self, kind: JobKind, name: str, patch: KubernetesObject) -> None:
        """Merge values into a training job."""
        self.call(self.custom.patch_namespaced_custom_object, *self._jobs(kind), name, patch)

    def delete_job(self, kind: JobKind, name: str) -> None:
        """Delete a training job and its pods."""
        address = self._jobs(kind)
        self.call(self.custom.delete_namespaced_custom_object, *address, name, propagation_policy="Background")

    def training_runtime(self, name: str) -> KubernetesObject | None:
        """A TrainingRuntime of the namespace."""
        address = (TRAINJOB.group, TRAINJOB.version, self.namespace, "trainingruntimes")
        runtime: KubernetesObject | None = self.call(self.custom.get_namespaced_custom_object, *address, name)
        return runtime

    def pods(self, selector: str) -> list[KubernetesObject]:
        """Pods with these labels."""
        return list(self.call(self.core.list_namespaced_pod, self.namespace, label_selector=selector)["items"])

    def delete_pod(self, name: str, grace: int | None = None) -> None:
        """Delete a pod; a grace of 0 removes it even if its node does not answer."""
        options = {} if grace is None else {"grace_period_seconds": grace}
        self.call(self.core.delete_namespaced_pod, name, self.namespace, **options)

    def log(self, pod: str, lines: int) -> list[str]:
        """The last lines of a pod's log; none when the pod no longer exists, or has logged nothing."""
        # Not call(): a log is text and no JSON, and a missing log is no reason to wait or to fail.
        try:
            answer = self.core.read_namespaced_pod_log(
                pod, self.namespace, tail_lines=lines, _request_timeout=SECONDS, _preload_content=False
            )
        except (ApiException, HTTPError, OSError):
            return []
        return str(answer.data.decode(errors="replace")).splitlines()

    def workload_of(self, job: KubernetesObject) -> KubernetesObject | None:
        """Kueue's Workload of a job, with the reason for waiting; None without a Workload, or without Kueue."""
        # By the owner reference: Kueue names a workload after the job and a hash.
        if self.kueue is None:
            return None
        response = self.call(self.custom.list_namespaced_custom_object, KUEUE, self.kueue, self.namespace, "workloads")
        uid = job["metadata"]["uid"]
        for workload in response["items"] if response else ():
            if any(owner["uid"] == uid for owner in workload["metadata"].get("ownerReferences", ())):
                return self._with_pending_reason(workload)
        return None

    def _with_pending_reason(self, workload: KubernetesObject) -> KubernetesObject:
        """Add the reason from an event: Kueue tries to write it once, which fails if the object changes meanwhile."""
        status = workload.get("status", {})
        conditions = list(status.get("conditions", ()))
        if not any(condition["type"] == "QuotaReserved" for condition in conditions):
            pending = [event for event in self.events(workload) if event.get("reason") == "Pending"]
            conditions += [{"type": "QuotaReserved", "status": "False", "message": e["message"]} for e in pending[-1:]]
        return {**workload, "status": {**status, "conditions": conditions}}

    def refusals(self, kind: JobKind, job: KubernetesObject) -> list[KubernetesObject]:
        """Events that explain why a job has no pods: of the job, and of the Job that creates its pods."""
        events = self.events(job)
        if kind.pod_maker:
            name = f"{job['metadata']['name']}{kind.pod_maker}"
            maker = self.call(self.batch.read_namespaced_job, name, self.namespace)
            events += self.events(maker) if maker else []
        return [event for event in events if event.get("reason") in kind.refusals]

    def events(self, subject: KubernetesObject) -> list[KubernetesObject]:
        """Events of an object, without those of an earlier one of the same name; the newest last."""
        meta = subject["metadata"]
        chosen = f"involvedObject.name={meta['name']},involvedObject.uid={meta['uid']}"
        response = self.call(self.core.list_namespaced_event, self.namespace, field_selector=chosen)
        return sorted(
            response["items"], key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or "")
        )

    def allows(
        self, verb: str, group: str, resource: str, namespaced: bool = True, account: str = "", name: str = ""
    ) -> bool:
        """Whether this account, or a ServiceAccount of the namespace, has a right, for all objects or for one name."""
        attributes = {"verb": verb, "group": group, "resource": resource.partition("/")[0]}
        attributes |= {"subresource": resource.partition("/")[2]} if "/" in resource else {}
        attributes |= {"namespace": self.namespace} if namespaced else {}
        attributes |= {"name": name} if name else {}
        spec: KubernetesObject = {"resourceAttributes": attributes}
        api = client.AuthorizationV1Api(self.core.api_client)
        review = api.create_subject_access_review if account else api.create_self_subject_access_review
        spec |= {"user": f"system:serviceaccount:{self.namespace}:{account}"} if account else {}
        return bool(self.call(review, {"spec": spec})["status"].get("allowed"))

    def knows(self, group: str, version: str, resource: str) -> bool:
        """Whether the cluster serves a type in this version: several projects share the group kubeflow.org."""
        response = self.call(self.custom.get_api_resources, group, version)
        return response is not None and resource in {entry["name"] for entry in response["resources"]}

    def has(self, kind: JobKind) -> bool:
        """Whether the cluster has jobs of a kind."""
        return self.knows(kind.group, kind.version, kind.plural)

    def serves(self, group: str, resource: str) -> frozenset[str]:
        """The versions of an operator's type that the cluster serves, of those in SERVED."""
        versions = [entry.version for entry in SERVED if entry.group == group]
        return frozenset(version for version in versions if self.knows(group, version, resource))

    @cached_property
    def kueue(self) -> str | None:
        """The newest version of Kueue's API that the cluster serves; None without Kueue. Requested once."""
        served = self.serves(KUEUE, "workloads")
        return next((entry.version for entry in SERVED if entry.group == KUEUE and entry.version in served), None)

    def fields(self, kind: JobKind) -> set[str] | None:
        """The fields of a kind's spec in the cluster's OpenAPI schemas; None without a schema."""
        address = f"/openapi/v3/apis/{kind.api_version}"
        options: KubernetesObject = {"auth_settings": ["BearerToken"], "_return_http_data_only": True}
        document = self.call(self.plain.call_api, address, "GET", **options) or {}
        for schema in document.get("components", {}).get("schemas", {}).values():
            if any(
                group_version_kind["kind"] == kind.name
                for group_version_kind in schema.get("x-kubernetes-group-version-kind", ())
            ):
                return set(schema["properties"]["spec"]["properties"])
        return None

    def nodes(self) -> list[KubernetesObject]:
        """All nodes."""
        return list(self.call(self.core.list_node)["items"])

    def _jobs(self, kind: JobKind) -> tuple[str, str, str, str]:
        return kind.group, kind.version, self.namespace, kind.plural


def retry_while_away(question: Callable[[], Answer], watch: Callable[[], None]) -> Answer:
    """The response. The request is repeated while the API server is away, and watch is called before each attempt."""
    while True:
        watch()
        try:
            return question()
        except Unavailable:
            time.sleep(AGAIN)


def _owner(question: Callable[..., Any]) -> str:
    api = type(question.__self__)  # type: ignore[attr-defined]
    names = {client.CoreV1Api: "core", client.CustomObjectsApi: "custom", client.BatchV1Api: "batch"}
    return (names | {client.ApiClient: "plain", client.NetworkingV1Api: "networking"})[api]


def _readable(error: ApiException) -> UnderstudyError:
    try:
        message = str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        message = str(error.reason)
    # A webhook that is down appears as a 500 of the API server ("failed calling webhook") and may recover in a moment;
    # one that refuses appears as "denied the request", and will refuse again.
    if error.status in (429, 500, 502, 503, 504) and "denied the request" not in message:
        return Unavailable(f"the API server cannot answer now ({message})")
    if error.status == 403 and " cannot " in message:
        role = "Role understudy-pipeline (for people: understudy-user) of manifests/base/rights.yaml"
        return Refused(f"a permission is missing: {message}; the {role} grants it")
    if error.status == 401:
        return Refused("the API server does not accept this account's token; sign in again")
    return Refused(f"the cluster rejected the request: {message}")
