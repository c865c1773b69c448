"""understudy doctor --cluster: checks of the ServiceAccounts that runs use, as opposed to the user's account.

A run without KFP is a Job with the pipeline's account. KFP's tasks have one of KFP's accounts and request a token for
MLflow, so they also need the right to do so, and a place among MLflow's writers.
"""

from collections.abc import Container, Iterator

import yaml

from understudy.cli.check import Check
from understudy.kube.api import Kube, Refused
from understudy.kube.kind import KINDS, PYTORCHJOB, TRAINJOB
from understudy.kube.operators import KUEUE
from understudy.kube.settings import CONFIG
from understudy.runs import submission

NEEDS = (
    *((verb, kind.group, kind.plural) for kind in KINDS.values() for verb in ("get", "list", "create", "delete")),
    ("patch", PYTORCHJOB.group, PYTORCHJOB.plural),
    ("get", TRAINJOB.group, "trainingruntimes"),
    *((verb, "", "pods") for verb in ("get", "list", "delete")),
    ("get", "", "pods/log"),
    *((verb, "", "events") for verb in ("list", "create")),
    *((verb, "networking.k8s.io", "networkpolicies") for verb in ("get", "create")),
    ("list", KUEUE, "workloads"),
    *((verb, "batch", "jobs") for verb in ("get", "list")),
    ("get", "argoproj.io", "workflows"),
)
"""Rights of the pipeline's account: those of the Role understudy-pipeline."""
KFP = {"pipeline-runner": "components/kfp", "default-editor": "components/kubeflow-profile"}
"""The accounts of KFP's tasks (KFP's namespace, a profile's), and the component in manifests/ for their rights."""
TOKEN = ("create", "", "serviceaccounts/token")


def checks(kube: Kube, absent: Container[str] = ()) -> Iterator[Check]:
    """Check the rights of the accounts that run tasks, and that KFP's accounts are writers in MLflow.

    Args:
        kube: the namespace.
        absent: API groups of operators that the cluster does not have.
    """
    yield rights(kube, submission.ACCOUNT, absent)
    for account in KFP:
        try:
            account_object = kube.call(kube.core.read_namespaced_service_account, account, kube.namespace)
        except Refused:
            yield Check(f"rights of {account}", "cannot be seen from this account")
            continue
        if account_object:
            yield rights(kube, account, absent)
            yield from _writer(kube, account)


def rights(kube: Kube, account: str, absent: Container[str] = ()) -> Check:
    """Check that an account has the rights that runs need.

    Args:
        kube: the namespace.
        account: the ServiceAccount's name.
        absent: API groups of operators that the cluster does not have.
    """
    subject = f"rights of {account}"
    if not kube.allows("create", "authorization.k8s.io", "subjectaccessreviews", namespaced=False):
        return Check(subject, "cannot be seen from this account")
    checked = [right for right in NEEDS if right[1] not in absent]
    denied = [f"{verb} {kind}" for verb, group, kind in checked if not kube.allows(verb, group, kind, account=account)]
    if account in KFP and not kube.allows(*TOKEN, account=account, name=account):
        denied.append(f"{TOKEN[0]} {TOKEN[2]} of itself, with which it signs in to MLflow")
    if not denied:
        return Check(subject, "all that runs need")
    binds = f"with {KFP[account]} (docs/operating/kfp.md)" if account in KFP else "one of manifests/overlays"
    fix = f"kubectl apply -k {binds} binds the Role {submission.ACCOUNT}"
    return Check(subject, f"it may not {', '.join(denied)}", fix)


def _writer(kube: Kube, account: str) -> Iterator[Check]:
    """Check that MLflow's settings let the account write; nothing if they have no accounts."""
    config_map = kube.call(kube.core.read_namespaced_config_map, CONFIG, kube.namespace)
    text = (config_map or {}).get("data", {}).get("accounts.yaml")
    if not text:
        return
    teams = yaml.safe_load(text.replace("$(NAMESPACE)", kube.namespace)).get("teams", {}).values()
    name = f"system:serviceaccount:{kube.namespace}:{account}"
    writes = any(name in team.get("writers", ()) for team in teams)
    fix = "" if writes else f"add {name} to the writers of a team in accounts.yaml of the settings, and apply them"
    yield Check(f"{account} in MLflow", "a writer" if writes else "not among the writers", fix)
