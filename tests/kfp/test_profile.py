"""The overlay of docs/operating/kfp.md for a profile of Kubeflow: who runs tasks, and with which rights.

KFP with several users, and Istio, are not here.
"""

import json

import pytest

from tests.kfp.server import HOST, SEED, apply, forwarded, kubectl, opened
from understudy.cli import doctor_cluster
from understudy.errors import Forbidden
from understudy.registry import rest

PROFILE, ACCOUNT = "team-a", "default-editor"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not HOST, reason="KFP_HOST is not set"),
]


@pytest.fixture(scope="module", autouse=True)
def profile(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A namespace with the account that Kubeflow makes there, and the overlay. It stays, as all of the walk does."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": PROFILE}}
    for manifest in ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PROFILE}}, account):
        kubectl("apply", "--server-side", "-f", "-", namespace=PROFILE, stdin=json.dumps(manifest))
    apply(tmp_path_factory.mktemp("profile"), PROFILE)


def test_the_doctor_finds_nothing() -> None:
    assert not [check for check in doctor_cluster.checks(PROFILE) if not check.ok]


def test_the_account_of_tasks_may_not_open_ways_to_pods() -> None:
    assert "a launcher's policy is for the ranks of one job" in opened(PROFILE, ACCOUNT)


@pytest.mark.parametrize(("account", "writes"), [(ACCOUNT, True), ("default", False)])
def test_the_account_of_tasks_gets_a_token_and_writes_with_it(
    monkeypatch: pytest.MonkeyPatch, account: str, writes: bool
) -> None:
    """Its own token by its own right; an account of the namespace that runs no tasks is no writer."""
    asked_by = [f"--as=system:serviceaccount:{PROFILE}:{account}"] if writes else []
    token = kubectl("create", "token", account, "--audience=mlflow", *asked_by, namespace=PROFILE)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token)
    with forwarded(PROFILE) as address:
        if writes:
            assert rest.post(address, "experiments/create", name=f"{account}-{SEED}")["experiment_id"]
        else:
            with pytest.raises(Forbidden):
                rest.post(address, "experiments/create", name=f"{account}-{SEED}")
