"""The table of rights in docs/operating/mlflow-server.md is that of the manifests' roles: each verb, each account."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests import ROOT

FILES = ("base/rights.yaml", "components/kfp-sign-in/token.yaml")
Row = tuple[str, str, str]


def resources() -> list[dict[str, Any]]:
    return [
        resource
        for name in FILES
        for resource in yaml.safe_load_all((ROOT / "manifests" / name).read_text())
        if resource
    ]


def granted() -> Iterator[Row]:
    """Account, resource and verbs of every rule that is bound to an account."""
    roles = {(role["kind"], role["metadata"]["name"]): role for role in resources()}
    for binding in (resource for resource in resources() if resource["kind"].endswith("Binding")):
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            for rule in role["rules"]:
                yield from _rows(subject["name"], role["kind"] == "ClusterRole", rule)


def _rows(account: str, everywhere: bool, rule: dict[str, Any]) -> Iterator[Row]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            name = f"{resource}.{group}" if group else resource
            only = f" {', '.join(rule['resourceNames'])}" if "resourceNames" in rule else ""
            yield account, name + only + (" (of the cluster)" if everywhere else ""), ", ".join(rule["verbs"])


def documented() -> set[Row]:
    text = (ROOT / "docs/operating/mlflow-server.md").read_text().split("## Rights in the cluster")[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {
        (account.strip("`"), object_name.replace("`", ""), verbs)
        for account, object_name, verbs in rows
        if verbs != "nothing"
    }


def test_the_table_of_rights_matches_the_roles() -> None:
    assert documented() == set(granted())


def test_no_account_reads_secrets_or_may_everything() -> None:
    for account, object_name, verbs in granted():
        assert "secrets" not in object_name, account
        assert "*" not in object_name + verbs, account
        assert not {"impersonate", "bind", "escalate"} & set(verbs.split(", ")), account


def test_the_ranks_account_has_no_right_and_no_token() -> None:
    [worker] = [resource for resource in resources() if resource["metadata"]["name"] == "understudy-worker"]
    assert worker["automountServiceAccountToken"] is False
    assert "understudy-worker" not in {account for account, _, _ in granted()}
