"""From an empty cluster to a promoted model by Argo CD, out of a bare Git repository; and resources never removed.

The cluster runs Argo CD and the operators already (`cluster up --with trainer --with argocd`). So the environment is
`dev` without their Applications; it has a stand-in for an operator that takes its time, TrainJobs, and promotions.
The nodes have to know the images registry.example.com/ml/understudy-{trainer,launcher,mlflow}, tags 0.1.0 and 0.1.1.
The tests are steps of one way: each goes on where the one before ended.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.launched import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.timeout(2400)]
NAMESPACE, PROMOTIONS = "understudy", "understudy-promotions"
APPLICATIONS = {"understudy-root", "stand-in", "understudy", PROMOTIONS}
SERVER = "http://127.0.0.1:15000"
PASSWORD = "only-for-development"
PEOPLE = ("ann", "bob")
IMAGES = ("trainer", "launcher", "mlflow")
CLAIMS = ("understudy-store", "mlflow")
FLUX = {
    "github.com/fluxcd/kustomize-controller@v1.7.3": ["*_kustomizations.yaml"],
    "github.com/fluxcd/source-controller@v1.8.5": ["*_gitrepositories.yaml", "*_helmrepositories.yaml"],
}
AN_OLDER_SCHEMA = """
import os
from alembic import command
from mlflow.store.db import utils
from sqlalchemy import create_engine
uri = os.environ["MLFLOW_BACKEND_STORE_URI"]
config = utils._get_alembic_config(uri)
with create_engine(uri).begin() as connection:
    config.attributes["connection"] = connection
    command.downgrade(config, "-1")
"""
STAND_IN = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "stand-in"},
    "spec": {
        "selector": {"matchLabels": {"app": "stand-in"}},
        "template": {
            "metadata": {"labels": {"app": "stand-in"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "operator",
                        "image": "registry.example.com/ml/understudy-launcher:0.1.0",
                        "command": ["sleep", "infinity"],
                        "readinessProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": 15},
                    }
                ],
            },
        },
    },
}


def run(*command: str, folder: Path | None = None, **environment: str) -> str:
    outside = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def kubectl(*arguments: str) -> str:
    return run("kubectl", *arguments)


def wait(condition: Callable[[], bool], state: Callable[[], str], seconds: float = 600) -> None:
    """Until the condition holds; `state` says what there is instead when the time is over."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, state()
        time.sleep(1)


class Repository:
    """A checkout that pushes to the bare repository that Argo CD reads."""

    def __init__(self, folder: Path) -> None:
        self.bare, self.folder = folder / "understudy.git", folder / "checkout"
        run("git", "init", "-q", "--bare", "-b", "main", str(self.bare))
        run("git", "init", "-q", "-b", "main", str(self.folder))
        for key, value in (("user.name", "Tests"), ("user.email", "tests@example.com")):
            self.git("config", key, value)
        shutil.copytree(ROOT / "manifests", self.folder / "manifests")
        self.git("remote", "add", "origin", f"file://{self.bare}")

    def git(self, *arguments: str) -> str:
        return run("git", *arguments, folder=self.folder)

    def path(self, name: str) -> Path:
        return self.folder / "manifests" / name

    def change(self, name: str, old: str, new: str) -> None:
        text = self.path(name).read_text()
        assert old in text, f"{name}: {old}"
        self.path(name).write_text(text.replace(old, new))

    def write(self, name: str, *resources: dict[str, Any]) -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(yaml.safe_dump_all(resources))

    def push(self, message: str) -> str:
        """The pushed commit."""
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        self.git("push", "-q", "origin", "main")
        return self.git("rev-parse", "HEAD").strip()


def applications() -> dict[str, dict[str, Any]]:
    items = json.loads(kubectl("-n", "argocd", "get", "applications", "-o", "json"))["items"]
    return {item["metadata"]["name"]: item for item in items}


def states() -> dict[str, tuple[str, str, str]]:
    """The commit, the sync and the health of each Application."""
    by_name = {}
    for name, application in applications().items():
        status = application.get("status", {})
        sync = status.get("sync", {})
        by_name[name] = (sync.get("revision", ""), sync.get("status", ""), status.get("health", {}).get("status", ""))
    return by_name


def settled(commit: str) -> None:
    """Wait until every Application is Synced and Healthy at a commit."""
    expected = dict.fromkeys(APPLICATIONS, (commit, "Synced", "Healthy"))
    wait(lambda: expected.items() <= states().items(), lambda: f"{commit}: {states()}")


def understudy(*arguments: str, folder: Path | None = None) -> str:
    account = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": PASSWORD}
    return run(sys.executable, "-m", "understudy", "--tracking-uri", SERVER, *arguments, folder=folder, **account)


def mlflow_response(path: str) -> dict[str, Any]:
    """The MLflow server's answer to the admin."""
    request = urllib.request.Request(f"{SERVER}/api/2.0/mlflow/{path}")
    request.add_header("Authorization", "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode())
    with urllib.request.urlopen(request) as answer:
        response: dict[str, Any] = json.load(answer)
    return response


def champion() -> str:
    aliases = mlflow_response("registered-models/get?name=digits")["registered_model"].get("aliases", ())
    return next((str(alias["version"]) for alias in aliases if alias["alias"] == "champion"), "")


@pytest.fixture
def server() -> Iterator[None]:
    """The MLflow server at an address of this machine."""
    kubectl("-n", NAMESPACE, "rollout", "status", "deployment/mlflow", "--timeout=300s")
    forward = subprocess.Popen(["kubectl", "-n", NAMESPACE, "port-forward", "service/mlflow", "15000:5000"])

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{SERVER}/health"):
                return True
        except OSError:
            return False

    wait(answers, lambda: "the server does not answer", 60)
    yield
    forward.terminate()
    forward.wait()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repo = Repository(tmp_path_factory.mktemp("git"))
    settings = "settings/dev/settings.yaml"
    repo.change(settings, "https://git.example.com/ml/understudy.git", f"file://{repo.bare}")
    last = "  - ../../components/settings\n"
    repo.change("overlays/dev/kustomization.yaml", last, f"  - ../../components/trainer\n{last}")
    listed = "  - ../../argocd/promotions\n  - stand-in\n"
    repo.change("clusters/dev/kustomization.yaml", "  - ../../argocd/training-operator\n", listed)
    application = yaml.safe_load(repo.path("argocd/training-operator/application.yaml").read_text())
    application["metadata"]["name"] = "stand-in"
    source = {"repoURL": f"file://{repo.bare}", "targetRevision": "main", "path": "manifests/clusters/dev/operator"}
    application["spec"] |= {"source": source}
    application["spec"]["destination"]["namespace"] = "stand-in"
    repo.write("clusters/dev/stand-in/application.yaml", application)
    repo.write("clusters/dev/stand-in/kustomization.yaml", {"resources": ["application.yaml"]})
    repo.write("clusters/dev/operator/deployment.yaml", STAND_IN)
    repo.write("clusters/dev/operator/kustomization.yaml", {"resources": ["deployment.yaml"]})
    keys = {}
    for name in PEOPLE:
        key = repo.folder.parent / name
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        keys[name] = key.with_suffix(".pub").read_text().strip()
    repo.change("promotions/policy.yaml", "reviewers: {}", f"reviewers: {json.dumps(keys)}")
    return repo


def test_one_apply_makes_an_empty_cluster_ready_one_wave_after_the_other(repository: Repository) -> None:
    commit = repository.push("An environment")
    kubectl("apply", "--server-side", "-k", str(repository.path("clusters/dev/root")))
    wait(lambda: "understudy" in applications(), lambda: str(states()))
    assert states()["stand-in"][1:] == ("Synced", "Healthy")
    kubectl("-n", NAMESPACE, "wait", "--for=create", "deployment/mlflow", "--timeout=300s")
    kubectl("-n", NAMESPACE, "rollout", "status", "deployment/mlflow", "--timeout=300s")
    wait(lambda: PROMOTIONS in applications(), lambda: str(states()))
    settled(commit)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(("launcher", "seed"), [("pytorchjob", 0), ("trainjob", 1)])
def test_a_recipe_is_registered_through_the_launcher_that_the_settings_name(
    repository: Repository, launcher: str, seed: int
) -> None:
    if launcher == "trainjob":
        repository.change("settings/dev/settings.yaml", "# launcher: trainjob", "launcher: trainjob")
        settled(repository.push("TrainJobs"))
    overrides = [f"seed={seed}", "gate.margin=0.5", "student.control=false", "teacher.train.epochs=8"]
    overrides += ["student.train.epochs=12", "resources.teacher.device=cpu", "resources.distill.device=cpu"]
    options = [part for override in overrides for part in ("--set", override)]
    recipe = str(ROOT / "recipes" / "digits.yaml")
    output = understudy("run", recipe, "--on", "cluster", "-n", NAMESPACE, *options)
    assert re.search(rf"registered: digits version {seed + 1}\b", output), output
    kind = {"pytorchjob": "pytorchjobs.kubeflow.org", "trainjob": "trainjobs.trainer.kubeflow.org"}[launcher]
    assert kubectl("-n", NAMESPACE, "get", kind, "-o", "name")


def promote(repository: Repository, version: str) -> str:
    """The commit that merges a promotion, as docs/using/promotion.md has it."""
    understudy("review", "request", "digits", version, folder=repository.folder)
    repository.git("switch", "-q", f"promote/digits-{version}")
    for name in PEOPLE:
        key = str(repository.folder.parent / name)
        understudy("review", "approve", "digits", "--as", name, "--key", key, folder=repository.folder)
    repository.git("commit", "-q", "--all", "-m", "Approve")
    repository.git("switch", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "-m", f"Promote {version}", f"promote/digits-{version}")
    return repository.push("Promoted")


@pytest.mark.usefixtures("server")
def test_a_merge_promotes_and_its_revert_rolls_back(repository: Repository) -> None:
    settled(promote(repository, "1"))
    assert champion() == "1"
    settled(promote(repository, "2"))
    assert champion() == "2"
    repository.git("revert", "--no-edit", "-m", "1", "HEAD~1")
    settled(repository.push("Rolled back"))
    assert champion() == "1"
    understudy("review", "apply", str(repository.path("promotions")), "--check")


def test_a_change_by_hand_is_undone(repository: Repository) -> None:
    name = "app.kubernetes.io/name"
    changed = json.dumps({"spec": {"selector": {name: "nothing"}}})
    kubectl("-n", NAMESPACE, "patch", "service", "mlflow", "--type=merge", "-p", changed)
    kubectl("-n", NAMESPACE, "delete", "networkpolicy", "default-deny")
    kubectl("-n", NAMESPACE, "wait", "--for=create", "networkpolicy/default-deny", "--timeout=120s")
    selector = ["-n", NAMESPACE, "get", "service", "mlflow", "-o", "jsonpath={.spec.selector}"]
    wait(lambda: json.loads(kubectl(*selector)) == {name: "mlflow"}, lambda: kubectl(*selector))
    settled(repository.git("rev-parse", "HEAD").strip())


def test_a_release_is_one_changed_line_and_upgrades_the_database_before_its_server_starts(
    repository: Repository,
) -> None:
    kubectl("-n", NAMESPACE, "exec", "deployment/mlflow", "-c", "mlflow", "--", "python", "-c", AN_OLDER_SCHEMA)
    old, new = (" ".join(f"{name}:{tag}" for name in IMAGES) for tag in ("0.1.0", "0.1.1"))
    repository.change("settings/dev/settings.yaml", f"release: {old}", f"release: {new}")
    settled(repository.push("0.1.1"))
    kinds = "deployments,cronjobs,jobs,configmaps"
    manifests = kubectl("-n", NAMESPACE, "get", kinds, "-l", "app.kubernetes.io/part-of=understudy", "-o", "yaml")
    images = set(re.findall(r"registry\.example\.com/ml/understudy-\w+:[\d.]+\d", manifests))
    assert images == {f"registry.example.com/ml/understudy-{name}:0.1.1" for name in IMAGES}
    output = kubectl("-n", NAMESPACE, "logs", "deployment/mlflow", "-c", "upgrade")
    assert re.search(r"^runs and models: \w+ -> \w+$", output, re.MULTILINE), output


def test_a_removed_overlay_leaves_claims_and_promotions(repository: Repository) -> None:
    before = {name: kubectl("-n", NAMESPACE, "get", "pvc", name, "-o", "jsonpath={.metadata.uid}") for name in CLAIMS}
    empty = {"resources": ["../../settings/dev"], "namespace": NAMESPACE}
    repository.write("overlays/dev/kustomization.yaml", empty)
    kubectl("-n", NAMESPACE, "delete", "trainjobs", "--all")  # while there is one, the Trainer keeps its runtime
    repository.push("Nothing of the overlay")
    kubectl("-n", NAMESPACE, "wait", "--for=delete", "deployment/mlflow", "--timeout=300s")
    kubectl("-n", NAMESPACE, "wait", "--for=delete", "serviceaccount/understudy-pipeline", "--timeout=300s")
    after = {name: kubectl("-n", NAMESPACE, "get", "pvc", name, "-o", "jsonpath={.metadata.uid}") for name in CLAIMS}
    assert after == before
    repository.git("revert", "--no-edit", "HEAD")
    settled(repository.push("All of it again"))


@pytest.mark.usefixtures("server")
def test_promotions_are_there_when_the_overlay_is_back() -> None:
    assert champion() == "1"


@pytest.mark.parametrize("environment", ["dev", "production"])
def test_fluxs_resources_are_valid_for_its_types(environment: str) -> None:
    for module, names in FLUX.items():
        downloaded = json.loads(run("go", "mod", "download", "-json", module, folder=Path("/"), GOTOOLCHAIN="local"))
        bases = Path(downloaded["Dir"]) / "config" / "crd" / "bases"
        files = [str(file) for name in names for file in bases.glob(name)]
        kubectl("apply", "--server-side", *(part for file in files for part in ("-f", file)))
    subprocess.run(["kubectl", "create", "namespace", "flux-system"], capture_output=True, check=False)
    folder = str(ROOT / "manifests" / "clusters" / environment / "flux")
    kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-k", folder)
