"""understudy doctor --manifests on copies of the shipped tree, each with one thing wrong."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests import ROOT
from understudy.cli import doctor_manifests
from understudy.cli.check import Check
from understudy.kube import manifests

MANIFESTS = ROOT / "manifests"
pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
DIGEST = "@sha256:" + "0123456789abcdef" * 4
OWN = {
    "https://git.example.com/ml": "https://git.test/ml",
    "registry.example.com/ml": "registry.test/ml",
    "shared.example.com": "shared",
    "trainer:0.1.0 launcher:0.1.0 mlflow:0.1.0": " ".join(f"{n}:1{DIGEST}" for n in ("trainer", "launcher", "mlflow")),
}
EXAMPLES = re.compile(r"\b(git|registry|egress|backups|mlflow)\.example\.com")
SETTINGS = "settings/production/settings.yaml"
OVERLAY = "overlays/production/kustomization.yaml"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The tree as somebody has it who has set all that there is to set."""
    copy = shutil.copytree(MANIFESTS, tmp_path / "manifests")
    for old, new in OWN.items():
        replace(copy, SETTINGS, old, new)
    for path in copy.rglob("*.yaml"):
        path.write_text(EXAMPLES.sub(r"\1.test", path.read_text()).replace("192.0.2.", "10.9.8."))
    replace(copy, OVERLAY, 'newTag: "17"', f"digest: {DIGEST[1:]}")
    replace(copy, "promotions/policy.yaml", "reviewers: {}", "reviewers: {ann: 'ssh-ed25519 AAAA'}")
    return copy


def replace(tree: Path, name: str, old: str, new: str) -> None:
    text = (tree / name).read_text()
    assert old in text
    (tree / name).write_text(text.replace(old, new))


def problems(folder: Path) -> list[Check]:
    return [check for check in doctor_manifests.checks(folder) if not check.ok]


@pytest.mark.parametrize("folder", ["clusters/production", "clusters/production/flux", "overlays/production"])
def test_a_tree_in_which_everything_is_set_passes(tree: Path, folder: str) -> None:
    assert problems(tree / folder) == []


def test_every_placeholder_of_the_shipped_tree_is_named_with_its_place(understudy) -> None:
    outcome = understudy("doctor", "--manifests", str(MANIFESTS / "clusters" / "production"), "--json")
    assert outcome.code == 2
    failed = [check for check in json.loads(outcome.out)["checks"] if not check["ok"]]
    text = (MANIFESTS / SETTINGS).read_text().splitlines()
    settings_checks = [check for check in failed if SETTINGS in check["what"]]
    keys = {text[int(check["what"].rpartition(":")[2]) - 1].partition(":")[0].strip() for check in settings_checks}
    assert keys == {"repository", "registry", "release", "storage-class"}
    assert any("promotions/policy.yaml:" in check["what"] for check in failed)
    assert all(check["fix"] for check in failed)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (SETTINGS, f"mlflow:1{DIGEST}", "mlflow:1", "release: mlflow:1 has no digest"),
        (SETTINGS, f"mlflow:1{DIGEST}", f"mlflow:1{DIGEST[:-1]}", "has no digest"),
        (SETTINGS, "release: trainer:1", "release: launcher:1", "name trainer, launcher, mlflow in this order"),
        (SETTINGS, "claim: understudy-store", "claim: other", "there is no claim other"),
        (SETTINGS, "queue: training", "queue: other", "there is no LocalQueue other"),
        (SETTINGS, "secret-store: understudy", "secret-store: 192.0.2.7", "192.0.2.7 is a placeholder"),
        (SETTINGS, "# launcher: trainjob", "launcher: trainjob", "there is no TrainingRuntime understudy"),
        (SETTINGS, "# launcher: trainjob", "launcher: trainjob", "queues TrainJobs since 0.14"),
        (SETTINGS, "    pools:", "    pool:", "pool: Input should be a valid string"),
        ("base/claim.yaml", "ReadWriteMany", "ReadWriteOnce", "set one_node: true"),
        ("base/claim.yaml", "Prune=false,Delete=false", "Delete=false", "annotate it with argocd"),
        ("base/claim.yaml", "prune: disabled", "prune: enabled", "annotate it with kustomize"),
        ("base/namespace.yaml", "Prune=false,Delete=false", "Prune=true", "annotate it with argocd"),
        ("components/settings/kustomization.yaml", "name: understudy-jobs-gc", "name: nothing", "has no registry"),
        (OVERLAY, f"digest: {DIGEST[1:]}", 'newTag: "17"', "postgres:17 has no digest"),
        (
            "base/mlflow.yaml",
            'UNDERSTUDY_ACCOUNTS, value: ""',
            "UNDERSTUDY_ACCOUNTS, value: only-for-development",
            "everybody",
        ),
        ("argocd/kueue/application.yaml", "targetRevision: v0.12.3", "targetRevision: v0.20.0", "kueue-v1beta2"),
        (
            "argocd/kueue/application.yaml",
            "targetRevision: v0.12.3",
            "targetRevision: v0.19.1",
            "kubeflow.org/pytorchjob in",
        ),
        ("argocd/external-secrets/application.yaml", "1.3.1", "0.10.7", "external-secret-v1beta1"),
    ],
)
def test_what_is_wrong_is_told_with_the_fix(tree: Path, name: str, old: str, new: str, message: str) -> None:
    replace(tree, name, old, new)
    folder = "clusters/production" if "argocd" in name or "queues" in message else "overlays/production"
    lines = [f"{check.what}: {check.found}: {check.fix}" for check in problems(tree / folder)]
    assert any(message in text for text in lines), lines


def test_development_needs_no_digest_and_may_have_known_passwords(tmp_path: Path) -> None:
    copy = shutil.copytree(MANIFESTS, tmp_path / "manifests")
    replace(copy, "settings/dev/settings.yaml", "https://git.example.com/ml", "https://git.test/ml")
    replace(copy, "settings/dev/settings.yaml", "registry.example.com/ml", "registry.test/ml")
    assert problems(copy / "clusters" / "dev") == []


def test_a_component_makes_a_newer_kueue_fit(tree: Path) -> None:
    replace(tree, "argocd/kueue/application.yaml", "targetRevision: v0.12.3", "targetRevision: v0.20.0")
    replace(
        tree,
        OVERLAY,
        "  - ../../components/kueue\n",
        "  - ../../components/kueue\n  - ../../components/kueue-v1beta2\n",
    )
    assert not [check for check in problems(tree / "clusters" / "production") if "v1beta" in check.found]


def test_without_kustomize_it_says_so_and_reads_the_files(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests.shutil, "which", lambda name: None)
    replace(tree, SETTINGS, "registry.test/ml", "registry.example.com/ml")
    first, second = problems(tree / "overlays" / "production")
    assert first.found == "neither kubectl nor kustomize is installed"
    assert re.search(rf"{SETTINGS}:\d+$", second.what)
    assert second.fix == "put your own in"


def test_a_folder_that_reads_no_settings_is_told() -> None:
    [check] = problems(MANIFESTS / "base")
    assert "name manifests/clusters/ENV" in check.fix
