"""Jobs that maintain the platform: their pods, rights, resources and schedules."""

from typing import Any

import pytest

from tests.unit.manifests.rendered import KUBECTL, built, named, pods
from understudy.cli import app
from understudy.registry import pod_token

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
JOBS = {"mlflow-upgrade", "understudy-migrate-store"}
CRONJOBS = {"understudy-store-gc", "mlflow-gc", "understudy-store-backup", "mlflow-backup"}


@pytest.fixture
def production() -> list[dict[str, Any]]:
    return built("overlays/production")


@pytest.fixture
def operations(production: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Their pods, by the name of the Job or CronJob."""
    jobs = {**named(production, "Job"), **named(production, "CronJob")}
    return {name: pods([jobs[name]])[0] for name in JOBS | CRONJOBS}


def test_they_have_an_account_without_rights_or_token(
    production: list[dict[str, Any]], operations: dict[str, dict[str, Any]]
) -> None:
    bound = [*named(production, "RoleBinding").values(), *named(production, "ClusterRoleBinding").values()]
    subjects = {subject["name"] for binding in bound for subject in binding["subjects"]}
    accounts = {name: pod["spec"]["serviceAccountName"] for name, pod in operations.items()}
    assert accounts.pop("understudy-store-gc") == "understudy-pipeline", "it registered the models and can list them"
    assert set(accounts.values()) == {"understudy-operations"}
    assert "understudy-operations" not in subjects
    assert not any(pod["spec"]["automountServiceAccountToken"] for pod in operations.values())


def test_the_collection_of_the_store_signs_in_to_mlflow_and_nowhere_else(operations: dict[str, dict[str, Any]]) -> None:
    spec = operations["understudy-store-gc"]["spec"]
    [token] = [volume["projected"]["sources"] for volume in spec["volumes"] if "projected" in volume]
    assert [source["serviceAccountToken"]["audience"] for source in token] == [pod_token.AUDIENCE]
    assert pod_token.FOLDER in {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}


def test_their_first_containers_are_as_restricted_as_the_others(production: list[dict[str, Any]]) -> None:
    for pod in pods(production):
        for container in pod["spec"].get("initContainers", ()):
            assert container["securityContext"] == pod["spec"]["containers"][0]["securityContext"]
            assert "memory" in container["resources"]["limits"]


def test_one_at_a_time_and_not_for_ever(production: list[dict[str, Any]]) -> None:
    for name in CRONJOBS:
        spec = named(production, "CronJob")[name]["spec"]
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] <= 6 * 3600


def secrets(pod: dict[str, Any]) -> set[str]:
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    imported = {
        it["secretRef"]["name"] for container in containers for it in container.get("envFrom", ()) if "secretRef" in it
    }
    sources = [it.get("valueFrom", {}) for container in containers for it in container.get("env", ())]
    return imported | {it["secretKeyRef"]["name"] for it in sources if "secretKeyRef" in it}


def test_each_takes_the_secrets_that_it_needs(operations: dict[str, dict[str, Any]]) -> None:
    assert {name: secrets(pod) for name, pod in operations.items()} == {
        "mlflow-upgrade": {"mlflow-backend"},
        "understudy-migrate-store": set(),
        "understudy-store-gc": set(),
        "mlflow-gc": {"mlflow-backend"},
        "understudy-store-backup": {"understudy-backup"},
        "mlflow-backup": {"mlflow-backend", "understudy-backup"},
    }


def test_the_backup_of_the_store_cannot_write_to_it(operations: dict[str, dict[str, Any]]) -> None:
    [container] = operations["understudy-store-backup"]["spec"]["containers"]
    assert container["volumeMounts"][0] == {"name": "store", "mountPath": "/var/lib/understudy", "readOnly": True}


def test_the_database_is_dumped_before_the_files_are_listed(operations: dict[str, dict[str, Any]]) -> None:
    spec = operations["mlflow-backup"]["spec"]
    [dump], [backup] = spec["initContainers"], spec["containers"]
    assert "pg_dump --format=custom --no-owner --file=/dump/registry" in dump["command"][2]
    assert '"$VAULT/registry" --dump /dump/registry' in backup["command"][2]


def test_the_upgrade_comes_before_the_server_and_after_its_secret(production: list[dict[str, Any]]) -> None:
    def wave(kind: str, name: str) -> int:
        annotations = named(production, kind)[name]["metadata"].get("annotations", {})
        return int(annotations.get("argocd.argoproj.io/sync-wave", 0))

    order = [
        ("Namespace", "understudy"),
        ("ExternalSecret", "mlflow-backend"),
        ("Job", "mlflow-upgrade"),
        ("Deployment", "mlflow"),
    ]
    waves = [wave(kind, name) for kind, name in order]
    assert waves == sorted(set(waves))


def test_a_sqlite_file_is_upgraded_by_its_one_server_and_a_shared_database_is_not(
    production: list[dict[str, Any]],
) -> None:
    for resources, expected in ((built("base"), ["upgrade"]), (production, [])):
        spec = named(resources, "Deployment")["mlflow"]["spec"]["template"]["spec"]
        assert [it["name"] for it in spec.get("initContainers", ())] == expected


def test_every_command_that_they_run_is_one_of_understudys(operations: dict[str, dict[str, Any]]) -> None:
    commands = {group.name for group in app.registered_groups}
    for pod in operations.values():
        command = " ".join(pod["spec"]["containers"][0]["command"])
        if "-m understudy " in command:
            assert command.split("-m understudy ")[1].split()[0] in commands
