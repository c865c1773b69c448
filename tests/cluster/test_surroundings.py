"""Faults around a training in a cluster: its account's token, the tracking server, admission, its volume."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.launched import NOWHERE, SERVER, Launcher, kubectl, mlflow_answer, recipe, wait
from tests.cluster.volume import Volume

pytestmark = pytest.mark.cluster
Launch = Callable[..., Launcher]
ACCOUNT = "understudy-pipeline"
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture
def token(volume: Volume) -> Iterator[Callable[[str], None]]:
    """Puts a token of its own, which lives as long as a Secret, where the launcher reads its account's."""
    secrets_created: list[str] = []
    certificate = kubectl("get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}")

    def store_secret(secret: str) -> None:
        kubectl("create", "secret", "generic", secret)
        secrets_created.append(secret)
        bound = ["--bound-object-kind", "Secret", "--bound-object-name", secret]
        text = kubectl("create", "token", ACCOUNT, *bound)
        folder = "/var/lib/understudy/tokens"
        volume.sh(f"mkdir -p {folder} && cat > {folder}/ca.crt <<'EOF'\n{certificate}\nEOF")
        volume.sh(f"printf %s '{text}' > {folder}/.token && mv {folder}/.token {folder}/token")
        volume.sh(f"cp /var/run/secrets/kubernetes.io/serviceaccount/namespace {folder}/namespace")

    yield store_secret
    kubectl("delete", "secret", "--ignore-not-found", *secrets_created)


def reads_tokens_from_the_volume(pod: dict[str, Any]) -> None:
    pod["automountServiceAccountToken"] = False
    pod["containers"][0]["volumeMounts"].append({"name": "store", "mountPath": TOKENS, "subPath": "tokens"})


@pytest.mark.full
def test_a_token_that_expires_while_a_job_is_watched(
    launch: Launch, undisturbed: str, token: Callable[[str], None]
) -> None:
    token("token-1")
    launcher = launch(change=reads_tokens_from_the_volume)
    launcher.reaches(10)
    kubectl("delete", "secret", "token-1")
    launcher.says("the API server does not accept this account's token")
    token("token-2")
    assert launcher.ends() == 0, launcher.output()
    assert launcher.digest() == undisturbed


def runs_as(driver: dict[str, int], ranks: dict[str, int], home: str) -> Callable[[dict[str, Any]], None]:
    """Has a launcher and its ranks run as users of their own, in a home of theirs."""

    def change(pod: dict[str, Any]) -> None:
        pod["securityContext"] = {**pod["securityContext"], **driver}
        container = pod["containers"][0]
        variables = [variable for variable in container["env"] if variable["name"] != "UNDERSTUDY_HOME"]
        added = {"UNDERSTUDY_HOME": f"/var/lib/understudy/{home}", "SECURITY": json.dumps(ranks)}
        container["env"] = [*variables, *({"name": name, "value": value} for name, value in added.items())]
        folder = f"/var/lib/understudy/{home}"  # made as the Job understudy-prepare-store makes it, and for nobody else
        command = f"umask 0002 && mkdir -p {folder} && chmod 2770 {folder}"
        pod["initContainers"] = [{**container, "name": "prepare", "command": ["sh", "-c", command]}]

    return change


USERS = {
    "root-group": ({"runAsUser": 1000660000, "runAsGroup": 0}, {"runAsUser": 1000670000, "runAsGroup": 0}),
    "one-group": ({"runAsUser": 1000}, {"runAsUser": 2000, "runAsGroup": 1000}),
}


@pytest.mark.full
@pytest.mark.parametrize("name", USERS)
def test_pods_of_any_users_of_one_group(launch: Launch, undisturbed: str, name: str) -> None:
    driver, ranks = USERS[name]
    launcher = launch(change=runs_as(driver, ranks, name))
    assert launcher.ends() == 0, launcher.output()
    assert launcher.digest() == undisturbed


def speaks_to_the_server(pod: dict[str, Any]) -> None:
    for variable in pod["containers"][0]["env"]:
        if variable.get("value") == NOWHERE:
            variable["value"] = f"http://{SERVER}:5000"


@pytest.mark.full
def test_a_tracking_server_that_is_away_for_a_minute_gets_the_whole_curve(
    launch: Launch, server: Callable[[int], None], volume: Volume
) -> None:
    launcher = launch(recipe(train={"steps": 900}), change=speaks_to_the_server)
    launcher.reaches(25)
    server(0)
    time.sleep(60)
    server(1)
    assert launcher.ends() == 0, launcher.output()
    run = json.loads(volume.cat(f"store/runs/{launcher.name}/mlflow/teacher.json"))["run_id"]
    metrics = mlflow_answer(volume, f"metrics/get-history?run_id={run}&metric_key=loss")["metrics"]
    assert {int(metric["step"]) for metric in metrics} == {point["step"] for point in launcher.points()}


@pytest.fixture
def policy(kube: Any) -> Iterator[None]:
    """Admission refuses jobs of more than three nodes, with words of its own."""
    name = kube.namespace
    rule = {
        "apiGroups": ["kubeflow.org"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pytorchjobs"],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    small = "object.spec.pytorchReplicaSpecs['Worker'].replicas <= 3"
    resources = [
        {
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": small, "message": "three nodes are enough for everybody"}],
            },
        },
        {
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": selector},
            },
        },
    ]
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [group | resource for resource in resources]})
    kubectl("apply", "-f", "-", text=text)
    time.sleep(5)  # until the API server has taken it in
    yield
    kubectl("delete", "-f", "-", text=text)


def test_a_job_that_admission_refuses_fails_with_its_words(launch: Launch, policy: None) -> None:
    launcher = launch(recipe(nodes=4))
    assert launcher.ends() == 1
    assert "was not accepted: the cluster rejected the request: " in launcher.output()
    assert "three nodes are enough for everybody" in launcher.output()


def dies_last(how: str) -> dict[str, Any]:
    return recipe("dies_last", kwargs={"how": how, "rank": 1, "sign": "died-last"})


@pytest.mark.full
def test_one_worker_done_and_another_killed_is_no_success_yet(launch: Launch) -> None:
    launcher = launch(dies_last("killed"))
    assert launcher.ends() == 0, launcher.output()
    assert "restarting at the last checkpoint: rank 1 ended with signal SIGKILL" in launcher.output()


@pytest.mark.full
def test_one_worker_done_and_another_failed_is_a_failure(launch: Launch) -> None:
    launcher = launch(dies_last("raised"))
    assert launcher.ends() == 1, launcher.output()
    assert "rank 1: ValueError: at the very end" in launcher.output()
    wait(lambda: not launcher.workers(), 60)
