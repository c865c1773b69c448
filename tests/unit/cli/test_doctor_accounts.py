"""Doctor's checks of the accounts that run tasks, by the rights that the API server reports."""

from types import SimpleNamespace
from typing import Any

import pytest

from understudy.cli.check import Check
from understudy.cli.doctor_accounts import KFP, checks, rights
from understudy.kube.api import Kube, Refused
from understudy.kube.kind import TRAINJOB

PIPELINE = "understudy-pipeline"
WRITERS = "teams: {understudy: {writers: ['system:serviceaccount:$(NAMESPACE):%s'], readers: [], reviewers: []}}"


class Rights(Kube):
    """A namespace with some accounts, which have all rights but the denied ones."""

    def __init__(self, *denied: str, reviews: bool = True, accounts: tuple[str, ...] = (), writer: str = "") -> None:
        self.namespace, self._denied, self._reviews = "here", denied, reviews
        self._accounts, self._writer = accounts, writer
        self.core = SimpleNamespace(read_namespaced_service_account="account", read_namespaced_config_map="map")

    def allows(
        self, verb: str, group: str, resource: str, namespaced: bool = True, account: str = "", name: str = ""
    ) -> bool:
        if resource == "subjectaccessreviews":
            return self._reviews
        assert account in (PIPELINE, *KFP)
        assert name == (account if resource == "serviceaccounts/token" else ""), "a token of itself alone"
        return f"{verb} {resource}" not in self._denied

    def call(self, method: Any, *arguments: Any, **options: Any) -> Any:
        if method == "map":
            return {"data": {"accounts.yaml": WRITERS % self._writer}} if self._writer else {"data": {}}
        return {"metadata": {}} if arguments[0] in self._accounts else None


def test_what_the_pipelines_account_may_not_is_named() -> None:
    assert rights(Rights(), PIPELINE).ok
    lacking = rights(Rights("create pytorchjobs", "list events"), PIPELINE)
    assert lacking.found == "it may not create pytorchjobs, list events"
    assert "binds the Role understudy-pipeline" in lacking.fix
    assert rights(Rights("create pytorchjobs", reviews=False), PIPELINE).ok, "that it is missing is not known"


def test_rights_to_jobs_of_an_operator_that_is_not_installed_are_not_asked_for() -> None:
    denied = Rights("create trainjobs", "get trainingruntimes")
    assert not rights(denied, PIPELINE).ok
    assert rights(denied, PIPELINE, {TRAINJOB.group}).ok


def checks_by_name(kube: Kube) -> dict[str, Check]:
    return {check.what: check for check in checks(kube)}


def test_without_kfp_only_the_pipelines_account_is_looked_at() -> None:
    assert list(checks_by_name(Rights("create serviceaccounts/token"))) == [f"rights of {PIPELINE}"]
    assert checks_by_name(Rights("create serviceaccounts/token"))[f"rights of {PIPELINE}"].ok, (
        "its pods have a token mounted"
    )


@pytest.mark.parametrize(("account", "component"), KFP.items())
def test_the_account_that_runs_kfps_tasks_is_looked_at_and_its_token_s_right_and_its_place_in_mlflow(
    account: str, component: str
) -> None:
    results = checks_by_name(Rights(accounts=(account,), writer=account))
    assert {subject: check.ok for subject, check in results.items()} == {
        f"rights of {PIPELINE}": True,
        f"rights of {account}": True,
        f"{account} in MLflow": True,
    }
    lacking = checks_by_name(
        Rights("create serviceaccounts/token", "get workflows", accounts=(account,), writer=PIPELINE)
    )
    check = lacking[f"rights of {account}"]
    assert check.found.startswith("it may not get workflows, create serviceaccounts/token of itself")
    assert component in check.fix
    assert f"system:serviceaccount:here:{account}" in lacking[f"{account} in MLflow"].fix


def test_accounts_that_cannot_be_seen_are_no_problem_of_the_cluster() -> None:
    class Blind(Rights):
        def call(self, method: Any, *arguments: Any, **options: Any) -> Any:
            raise Refused("may not get serviceaccounts")

    check = checks_by_name(Blind())["rights of pipeline-runner"]
    assert (check.found, check.ok) == ("cannot be seen from this account", True)
