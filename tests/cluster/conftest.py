"""The tests' namespace, a look into its volume, and launchers that end with their test."""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.launched import (
    FOR_THE_CLUSTER,
    GRACE,
    IMAGE,
    NAMESPACE,
    ROOT,
    SERVER,
    SETTINGS,
    SIGN,
    Launcher,
    kubectl,
    recipe,
    start,
    wait,
)
from tests.cluster.volume import Volume
from understudy.kube.api import Kube
from understudy.kube.kind import KINDS, TRAINJOB, JobKind
from understudy.kube.settings import parsed
from understudy.runs import submission


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """A namespace with the resources of the base."""
    built = kubectl("kustomize", str(ROOT / "manifests/base"))
    applied = []
    for document in yaml.safe_load_all(built):
        if document["kind"] == "Namespace":
            document["metadata"]["name"] = NAMESPACE
        elif "mlflow" in document["metadata"]["name"] or document["kind"] in ("NetworkPolicy", "CronJob"):
            continue
        elif document["kind"] == "ClusterRoleBinding":
            document["metadata"]["name"] = f"{NAMESPACE}-{document['metadata']['name']}"
        elif document["kind"] != "ClusterRole":
            document["metadata"]["namespace"] = NAMESPACE
        for subject in document.get("subjects", ()):
            subject["namespace"] = NAMESPACE
        applied.append(document)
    text = yaml.safe_dump_all(applied).replace("image: understudy-trainer", f"image: {IMAGE}")
    kubectl("apply", "--server-side", "-f", "-", text=text)
    if Kube(NAMESPACE).has(TRAINJOB):
        kubectl("apply", "--server-side", "-f", "-", text=runtime())
    kubectl("wait", "--for=condition=complete", "job/understudy-prepare-store", "--timeout=120s")
    yield Kube(NAMESPACE)
    kubectl("delete", "clusterrolebinding", *(f"{NAMESPACE}-{name}" for name in FOR_THE_CLUSTER), "--ignore-not-found")
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def runtime() -> str:
    """The TrainingRuntime of the manifests, with the grace period of the tests."""
    text = (ROOT / "manifests/components/trainer/runtime.yaml").read_text()
    changed = re.sub(r"terminationGracePeriodSeconds: \d+", f"terminationGracePeriodSeconds: {GRACE}", text)
    assert changed != text
    return changed


@pytest.fixture
def kind(request: pytest.FixtureRequest, kube: Kube) -> JobKind:
    """The kind of jobs in the cluster: PyTorchJobs, unless a test is for both kinds."""
    job_kind = KINDS[getattr(request, "param", "pytorchjob")]
    if not kube.has(job_kind):
        pytest.skip(f"the cluster has no {job_kind.operator}")
    return job_kind


@pytest.fixture(scope="session")
def volume(kube: Kube) -> Iterator[Volume]:
    """The store's files."""
    cluster = parsed(SETTINGS, "test")
    pod_spec = submission.render("looker", cluster)["spec"]["template"]["spec"]
    pod_spec["containers"][0] |= {"command": ["sleep", "infinity"], "envFrom": [], "resources": {}}
    pod_spec["terminationGracePeriodSeconds"] = 0
    pod_spec["volumes"] = [volume for volume in pod_spec["volumes"] if "configMap" not in volume]
    pod_spec["containers"][0]["volumeMounts"] = pod_spec["containers"][0]["volumeMounts"][:2]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "looker"}, "spec": pod_spec}
    kubectl("apply", "-f", "-", text=json.dumps(pod))
    kubectl("wait", "--for=condition=ready", "pod/looker", "--timeout=120s")
    opened = Volume(NAMESPACE, "looker")
    yield opened
    opened.close()


@pytest.fixture
def launch(kube: Kube, volume: Volume, kind: JobKind) -> Iterator[Callable[..., Launcher]]:
    """Starts launchers; those that still run end with the test."""
    name_of_launcher = next(name for name, value in KINDS.items() if value is kind)
    names: list[str] = []

    def launch(
        values: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
        change: Callable[[dict[str, Any]], None] = lambda pod: None,
        last: str = "teacher",
    ) -> Launcher:
        name = f"run-{secrets.token_hex(4)}"
        cluster = parsed({**SETTINGS, "launcher": name_of_launcher, **(settings or {})}, "test")
        names.append(name)
        start(name, values or recipe(), cluster, change, last)
        return Launcher(kube, name, volume, kind)

    yield launch
    chosen = f"understudy.run in ({', '.join(names)})"
    kubectl("delete", f"jobs,{kind.plural}", "-l", chosen, "--wait=false")
    wait(lambda: not kube.pods(chosen))
    volume.sh(f"rm -rf {SIGN} /var/lib/understudy/home/store/work/* /var/lib/understudy/home/store/step-cache/*")


@pytest.fixture(scope="session")
def heard(kube: Kube, volume: Volume) -> str:
    """The output of the launcher of an undisturbed PyTorchJob."""
    name = f"run-{secrets.token_hex(4)}"
    start(name, recipe(), parsed(SETTINGS, "test"))
    launcher = Launcher(kube, name, volume)
    assert launcher.ends() == 0, launcher.output()
    launcher.digest()  # its last word
    volume.sh("rm -rf /var/lib/understudy/home/store/work/* /var/lib/understudy/home/store/step-cache/*")
    return launcher.output()


@pytest.fixture(scope="session")
def undisturbed(heard: str) -> str:
    """The digest of the teacher that nobody disturbs."""
    (digest,) = re.findall(r"(?<=^teacher )[0-9a-f]{64}", heard, re.MULTILINE)
    return str(digest)


@pytest.fixture
def server(volume: Volume) -> Iterator[Callable[[int], None]]:
    """An MLflow server on the volume; it is scaled to the number that it is called with."""
    folder = "/var/lib/understudy/mlflow"
    volume.sh(f"mkdir -p {folder}")
    uri = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/artifacts"]
    hosts = ["--host", "0.0.0.0", "--allowed-hosts", "*"]
    container = {
        "name": "mlflow",
        "image": IMAGE,
        "command": ["python", "-m", "mlflow", "server", "--workers", "1", *hosts, *uri],
        "volumeMounts": [{"name": "store", "mountPath": "/var/lib/understudy"}, {"name": "tmp", "mountPath": "/tmp"}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 5000}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [
            {"name": "store", "persistentVolumeClaim": {"claimName": "understudy-store"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    labels = {"app": SERVER}
    template = {"metadata": {"labels": labels}, "spec": pod}
    objects = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": SERVER},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVER},
            "spec": {"selector": labels, "ports": [{"port": 5000, "name": "http"}]},
        },
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl("apply", "-f", "-", text=text)

    def scale(replicas: int) -> None:
        kubectl("scale", f"deployment/{SERVER}", f"--replicas={replicas}")
        if replicas:
            kubectl("rollout", "status", f"deployment/{SERVER}", "--timeout=180s")
        else:
            kubectl("wait", "--for=delete", "pod", "-l", f"app={SERVER}", "--timeout=60s")

    scale(1)
    yield scale
    kubectl("delete", "-f", "-", "--wait=false", text=text)


def manifest(version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


@pytest.fixture(scope="session")
def queue(kube: Kube) -> Iterator[dict[str, Any]]:
    """Settings with a queue whose quota is one CPU."""
    kueue, scheduling = "kueue.x-k8s.io/v1beta1", "scheduling.k8s.io/v1"
    quota = {"name": NAMESPACE, "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    spec = {
        "namespaceSelector": selector,
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
    }
    objects = [
        manifest(kueue, "ResourceFlavor", NAMESPACE),
        manifest(kueue, "ClusterQueue", NAMESPACE, spec=spec),
        manifest(kueue, "LocalQueue", "tests", spec={"clusterQueue": NAMESPACE}),
        manifest(scheduling, "PriorityClass", f"{NAMESPACE}-low", value=1),
        manifest(scheduling, "PriorityClass", f"{NAMESPACE}-high", value=100),
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl("apply", "--server-side", "-f", "-", text=text)
    yield {"queue": "tests"}
    kubectl("delete", "-f", "-", "--wait=false", text=text)


SECONDS: list[tuple[str, float]] = []


@pytest.fixture
def recovered(request: pytest.FixtureRequest) -> Callable[[float], None]:
    """Takes the seconds from a fault to the first step after it, for the table at the end."""
    return lambda seconds: SECONDS.append((request.node.name, seconds))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, seconds in SECONDS:
        terminalreporter.write_line(f"recovered in {seconds:5.1f} s: {name}")
