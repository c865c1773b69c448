"""The table of rights in docs/operating/mlflow-server.md is that of the manifests' roles: each verb, each account."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests import ROOT

FILES = ("base/rights.yaml", "components/kfp-sign-in/token.yaml")
Row = tuple[str, str, str]


def things() -> list[dict[str, Any]]:
    return [found for name in FILES for found in yaml.safe_load_all((ROOT / "manifests" / name).read_text()) if found]


def granted() -> Iterator[Row]:
    """Account, resource and verbs of every rule that is bound to an account."""
    roles = {(found["kind"], found["metadata"]["name"]): found for found in things()}
    for binding in (found for found in things() if found["kind"].endswith("Binding")):
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
    return {(account.strip("`"), thing.replace("`", ""), verbs) for account, thing, verbs in rows if verbs != "nothing"}


def test_the_table_of_rights_is_what_the_roles_say() -> None:
    assert documented() == set(granted())


def test_no_account_reads_secrets_or_may_everything() -> None:
    for account, thing, verbs in granted():
        assert "secrets" not in thing, account
        assert "*" not in thing + verbs, account
        assert not {"impersonate", "bind", "escalate"} & set(verbs.split(", ")), account


def test_the_ranks_account_has_no_right_and_no_token() -> None:
    [worker] = [found for found in things() if found["metadata"]["name"] == "understudy-worker"]
    assert worker["automountServiceAccountToken"] is False
    assert "understudy-worker" not in {account for account, _, _ in granted()}
