"""The manifests, as the API server takes them: accepted, idempotent, and with the rights that they promise."""

import json
import subprocess
from pathlib import Path

import pytest

MANIFESTS = Path(__file__).parents[2] / "manifests"
UNKNOWN = {"Pipeline", "PipelineVersion"}  # KFP's types are not on every cluster
pytestmark = pytest.mark.cluster
PIPELINE = "system:serviceaccount:understudy:understudy-pipeline"
WORKER = "system:serviceaccount:understudy:understudy-worker"


def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["kubectl", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    for name in ("understudy", "argocd"):
        kubectl("create", "namespace", name)


@pytest.mark.parametrize("folder", ["overlays/dev", "overlays/production", "clusters/dev", "clusters/production"])
def test_everything_is_accepted_without_a_warning(folder: str) -> None:
    done = kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-k", str(MANIFESTS / folder))
    assert (done.returncode, done.stderr) == (0, "")


def test_of_the_pipelines_only_types_that_the_cluster_lacks_are_refused() -> None:
    done = kubectl("apply", "--server-side", "--dry-run=server", "-k", str(MANIFESTS / "pipelines"))
    refused = [line for line in done.stderr.splitlines() if "ensure CRDs" not in line]
    assert all("no matches for kind" in line and line.split('kind "')[1].split('"')[0] in UNKNOWN for line in refused)


def test_applying_twice_changes_nothing() -> None:
    def versions() -> dict[str, str]:
        kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,cronjobs"
        found = json.loads(kubectl("-n", "understudy", "get", kinds, "-o", "json").stdout)["items"]
        metas = [(thing["kind"], thing["metadata"]) for thing in found]
        return {f"{kind}/{m['name']}": str(m.get("generation") or m["resourceVersion"]) for kind, m in metas}

    once = kubectl("apply", "--server-side", "--force-conflicts", "-k", str(MANIFESTS / "overlays/dev"))
    assert (once.returncode, once.stderr) == (0, "")
    before = versions()
    again = kubectl("apply", "--server-side", "-k", str(MANIFESTS / "overlays/dev"))
    assert (again.returncode, again.stderr) == (0, "")
    assert versions() == before


@pytest.mark.parametrize(
    ("account", "namespace", "verb", "thing", "allowed"),
    [
        (PIPELINE, "understudy", "create", "pytorchjobs.kubeflow.org", True),
        (PIPELINE, "understudy", "delete", "pytorchjobs.kubeflow.org", True),
        (PIPELINE, "understudy", "list", "pods", True),
        (PIPELINE, "understudy", "get", "pods/log", True),
        (PIPELINE, "understudy", "list", "events", True),
        (PIPELINE, "understudy", "list", "workloads.kueue.x-k8s.io", True),
        (PIPELINE, "understudy", "get", "secrets", False),
        (PIPELINE, "understudy", "list", "secrets", False),
        (PIPELINE, "understudy", "create", "pods", False),
        (PIPELINE, "understudy", "create", "pods/exec", False),
        (PIPELINE, "kube-system", "list", "pods", False),
        (PIPELINE, "kube-system", "get", "secrets", False),
        (WORKER, "understudy", "list", "pods", False),
        (WORKER, "understudy", "get", "secrets", False),
    ],
)
def test_accounts_may_what_they_need_and_nothing_else(
    account: str, namespace: str, verb: str, thing: str, allowed: bool
) -> None:
    resource, _, sub = thing.partition("/")
    detail = [f"--subresource={sub}"] if sub else []
    done = kubectl("auth", "can-i", verb, resource, *detail, "--as", account, "-n", namespace)
    assert done.stdout.strip() == ("yes" if allowed else "no")
