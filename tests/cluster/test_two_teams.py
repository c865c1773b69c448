"""Two teams in two namespaces on one MLflow server: each sees its own alone. A run outlives the token it began with."""

import base64
import json
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.launched import FOR_THE_CLUSTER, NOWHERE, ROOT, SETTINGS, overlay, recipe, rendered, wait
from understudy.kube.api import Kube
from understudy.kube.settings import parsed
from understudy.registry import pod_token
from understudy.runs import submission

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.timeout(2400)]
SHORT = 600  # seconds a token lives; the API server gives none that live shorter
HAS = """
import json, os
from mlflow import MlflowClient
client = MlflowClient()
experiments = client.search_experiments()
runs = client.search_runs([one.experiment_id for one in experiments])
found = {
    "models": [one.name for one in client.search_registered_models()],
    "versions": [f"{one.name} {one.version}" for one in client.search_model_versions()],
    "experiments": [one.name for one in experiments],
    "runs": [one.info.run_id for one in runs],
    "files": [file.path for one in runs for file in client.list_artifacts(one.info.run_id)],
    "ids": [one.experiment_id for one in experiments],
}
print(json.dumps(found))
"""
TRIES = """
import json, sys, tempfile
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from understudy.kube.api import Kube, Refused
from understudy.kube.kind import KINDS
other, namespace = json.loads(sys.argv[1]), sys.argv[2]
client, kube = MlflowClient(), Kube(namespace)
model, run, experiment = other["models"][0], other["runs"][0], other["ids"][0]
place = f"mlflow-artifacts:/{experiment}/{run}/artifacts"
tries = {
    "the model": lambda: client.get_registered_model(model),
    "its version": lambda: client.get_model_version(model, "1"),
    "its alias": lambda: client.get_model_version_by_alias(model, "challenger"),
    "an alias of one's own": lambda: client.set_registered_model_alias(model, "challenger", "1"),
    "a tag": lambda: client.set_model_version_tag(model, "1", "mine", "yes"),
    "to delete it": lambda: client.delete_registered_model(model),
    "a version of its run": lambda: client.create_model_version("stolen", place, run),
    "the run": lambda: client.get_run(run),
    "its files": lambda: client.list_artifacts(run),
    "a file": lambda: client.download_artifacts(run, other["files"][0], tempfile.mkdtemp()),
    "a metric": lambda: client.log_metric(run, "accuracy", 1.0),
    "the experiment": lambda: client.get_experiment(experiment),
    "a run of one's own in it": lambda: client.create_run(experiment),
    "jobs": lambda: [kube.jobs(kind, "") for kind in KINDS.values()],
    "pods": lambda: kube.pods(""),
    "logs": lambda: kube.call(kube.core.read_namespaced_pod_log, "looker", namespace),
    "secrets": lambda: kube.call(kube.core.list_namespaced_secret, namespace),
    "settings": lambda: kube.call(kube.core.list_namespaced_config_map, namespace),
}
client.create_registered_model("stolen")
said = {}
for what, ask in tries.items():
    try:
        said[what] = f"GOT {ask()!r}"
    except (MlflowException, Refused) as error:
        said[what] = str(error).splitlines()[0]
client.delete_registered_model("stolen")
said["runs by search"] = f"GOT {len(client.search_runs([experiment]))} runs" if client.search_runs([experiment]) else ""
print(json.dumps(said))
"""
ASKS = """
import sys, urllib.error, urllib.request
request = urllib.request.Request("http://mlflow:5000/api/2.0/mlflow/experiments/search?max_results=1")
request.add_header("Authorization", f"Bearer {sys.argv[1]}")
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@dataclass(frozen=True)
class Team:
    """A team's namespace, and the model that it makes there."""

    name: str
    namespace: str

    @property
    def model(self) -> str:
        return f"{self.name}-digits"

    @property
    def account(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{submission.ACCOUNT}"

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """The output of kubectl in its namespace."""
        command = ["kubectl", "-n", self.namespace, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def inside(self, code: str, *arguments: str) -> Any:
        """The JSON that Python code prints in a pod of the pipeline's account."""
        output = self("exec", "looker", "--", "python", "-W", "ignore", "-c", code, *arguments)
        return json.loads(output.splitlines()[-1])


VISION, SPEECH = (Team(name, f"understudy-{name}-{secrets.token_hex(3)}") for name in ("vision", "speech"))
TEAMS = (VISION, SPEECH)  # the server is vision's


def accounts() -> str:
    """Who may come to the server, as docs/operating/mlflow-server.md has it."""
    return yaml.safe_dump({"teams": {team.name: {"writers": [team.account]} for team in TEAMS}})


def resources_of(team: Team, folder: Path) -> list[dict[str, Any]]:
    """The resources of a team: the overlay dev, whose server is vision's."""
    resources = []
    for resource in yaml.safe_load_all(overlay(team.namespace, folder)):
        kind, name = resource["kind"], resource["metadata"]["name"]
        if kind == "Namespace":
            resource["metadata"].setdefault("labels", {})["understudy.dev/mlflow-users"] = "true"
        if kind == "Deployment":
            [setting] = [
                it for it in resource["spec"]["template"]["spec"]["containers"][0]["env"] if "ACCOUNTS" in it["name"]
            ]
            setting["value"] = accounts()
        if name == "understudy-environment":
            resource["data"]["MLFLOW_TRACKING_URI"] = f"http://mlflow.{VISION.namespace}:5000"
        if team is VISION or (not name.startswith("mlflow") and not name.endswith("understudy-token-reviews")):
            resources.append(resource)
    return resources


def looker(team: Team) -> dict[str, Any]:
    """A pod like a run's own, that waits to be asked."""
    spec = submission.render("looker", submission.settings(Kube(team.namespace)))["spec"]["template"]["spec"]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != "recipe"]
    [container] = spec["containers"]
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != "recipe"]
    container |= {"command": ["sleep", "infinity"], "resources": {}}
    spec["terminationGracePeriodSeconds"] = 0
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "looker"}, "spec": spec}


@pytest.fixture(scope="module", autouse=True)
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    for team in TEAMS:
        manifests = yaml.safe_dump_all(resources_of(team, tmp_path_factory.mktemp(team.name)))
        team("apply", "--server-side", "-f", "-", stdin=manifests)
    for team in TEAMS:
        team("wait", "--for=condition=complete", "job/understudy-prepare-store", "--timeout=180s")
        team("apply", "-f", "-", stdin=json.dumps(looker(team)))
        team("wait", "--for=condition=ready", "pod/looker", "--timeout=120s")
    VISION("rollout", "status", "deployment/mlflow", "--timeout=300s")
    yield
    for team in TEAMS:
        team("delete", "namespace", team.namespace, "--wait=false")
        team(
            "delete", "clusterrolebinding", "--ignore-not-found", *(f"{team.namespace}-{it}" for it in FOR_THE_CLUSTER)
        )


@pytest.fixture(scope="module")
def registered() -> dict[Team, dict[str, list[str]]]:
    """The objects that each team sees once both have registered a student, at the same time."""
    values = ["teacher.train.epochs=4", "student.train.epochs=6", "student.control=false", "gate.margin=0.9"]
    values += ["resources.teacher.device=cpu", "resources.distill.device=cpu"]
    running = {}
    for team in TEAMS:
        options = [part for setting in (*values, f"name={team.model}") for part in ("--set", setting)]
        destination = ["--on", "cluster", "-n", team.namespace]
        command = [sys.executable, "-m", "understudy", "run", str(ROOT / "recipes/digits.yaml"), *destination, *options]
        running[team] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    outputs = {team: process.communicate()[0] for team, process in running.items()}
    for team in TEAMS:
        assert f"registered: {team.model} version 1" in outputs[team], outputs[team]
    return {team: team.inside(HAS) for team in TEAMS}


def test_each_sees_its_own_models_runs_and_files_and_nothing_else(registered: dict[Team, dict[str, list[str]]]) -> None:
    for team in TEAMS:
        visible = registered[team]
        assert (visible["models"], visible["versions"]) == ([team.model], [f"{team.model} 1"])
        assert visible["experiments"] == [team.model]
        assert "report.html" in visible["files"]
    assert not set(registered[VISION]["runs"]) & set(registered[SPEECH]["runs"])


@pytest.mark.parametrize(("team", "other_team"), [TEAMS, TEAMS[::-1]], ids=lambda team: team.name)
def test_objects_of_the_other_team_are_refused_from_inside_the_pod(
    registered: dict[Team, dict[str, list[str]]], team: Team, other_team: Team
) -> None:
    answers = team.inside(TRIES, json.dumps(registered[other_team]), other_team.namespace)
    print(json.dumps(answers, indent=1))
    assert {attempt: answer for attempt, answer in answers.items() if answer.startswith("GOT")} == {}
    assert other_team.inside(HAS) == registered[other_team], "nothing of it was changed"


RIGHTS = (
    ("create", "pytorchjobs.kubeflow.org"),
    ("list", "pytorchjobs.kubeflow.org"),
    ("list", "trainjobs.trainer.kubeflow.org"),
    ("list", "pods"),
    ("get", "pods/log"),
    ("create", "pods"),
    ("get", "secrets"),
    ("get", "configmaps"),
    ("get", "persistentvolumeclaims"),
    ("create", "serviceaccounts/token"),
    ("create", "networkpolicies.networking.k8s.io"),
)
OWN = {"create pytorchjobs.kubeflow.org", "list pytorchjobs.kubeflow.org", "list trainjobs.trainer.kubeflow.org"}
OWN |= {"list pods", "get pods/log", "create networkpolicies.networking.k8s.io"}


@pytest.mark.parametrize("account", [submission.ACCOUNT, "understudy-worker", "mlflow", "default"])
def test_the_rights_of_an_account_end_with_its_namespace(account: str) -> None:
    for team in TEAMS:
        may = set()
        for verb, resource in RIGHTS:
            kind, _, sub = resource.partition("/")
            for owner in TEAMS:
                arguments = ["auth", "can-i", verb, kind, *([f"--subresource={sub}"] if sub else [])]
                options = ["--as", f"system:serviceaccount:{team.namespace}:{account}", "-n", owner.namespace]
                done = subprocess.run(["kubectl", *arguments, *options], capture_output=True, text=True, check=False)
                print(f"{team.name:7} {account:20} in {owner.name:7} {verb:7} {resource:36} {done.stdout.strip()}")
                may |= {(owner, f"{verb} {resource}")} if done.stdout.strip() == "yes" else set()
        assert may == ({(team, right) for right in OWN} if account == submission.ACCOUNT else set())


def payload(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


def test_a_run_goes_on_when_the_token_that_it_began_with_has_ended() -> None:
    values = recipe(nodes=1, train={"steps": 7000, "checkpoint_every": 1000}) | {"name": "token-digits"}
    values["student"] |= {
        "model": {"factory": "slow_model:build", "kwargs": {"width": 64, "pause": 0}},
        "train": {"steps": 300},
    }
    values["gate"] = {"margin": 0.9}
    name = f"token-{secrets.token_hex(3)}"
    maps, job = rendered(name, values, parsed(SETTINGS, "test"))
    pod = job["spec"]["template"]["spec"]
    [source] = [volume["projected"]["sources"] for volume in pod["volumes"] if volume["name"] == "mlflow"]
    source[0]["serviceAccountToken"] = {**source[0]["serviceAccountToken"], "expirationSeconds": SHORT}
    [container] = pod["containers"]
    container["command"] = ["python", "-m", "understudy", "run", "/etc/understudy-run/recipe.yaml"]
    container["env"] = [variable for variable in container["env"] if variable["value"] != NOWHERE]
    VISION("apply", "-f", "-", stdin=json.dumps(maps))
    VISION("apply", "-f", "-", stdin=json.dumps(job))
    label = ["-l", f"batch.kubernetes.io/job-name={name}"]

    def output() -> str:
        return VISION("logs", *label, "--tail=-1")

    def token() -> str:
        pod = VISION("get", "pods", *label, "-o", "name").strip()
        return VISION("exec", pod, "--", "cat", f"{pod_token.FOLDER}/token")

    wait(lambda: VISION("get", "pods", *label, "-o", "jsonpath={.items[*].status.phase}") == "Running")
    first = token()
    assert payload(first)["exp"] - time.time() < SHORT + 10
    wait(lambda: "teacher" in output(), 240, output)
    wait(lambda: token() != first, SHORT, output)
    time.sleep(max(0, payload(first)["exp"] + 70 - time.time()))  # an answer of the API server is kept for a minute
    later = token()
    assert VISION.inside(ASKS, first) == 401
    assert VISION.inside(ASKS, later) == 200
    assert "registered" not in output(), "it was to be at work still"
    match = wait(lambda: re.search(r"registered: token-digits version 1", output()), 1500, output)
    assert match
    assert "401" not in output()
    assert first not in output() + VISION("get", "job", name, "-o", "yaml")
