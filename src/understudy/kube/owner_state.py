"""Whether a job is an orphan: its owner, a Job or a Workflow, has ended, was terminated, or is gone."""

from typing import Any

from understudy.kube.api import Kube
from understudy.kube.job_state import true_conditions
from understudy.kube.objects import OwnerReference

ENDED_PHASES = ("Succeeded", "Failed", "Error")
"""Phases of a Workflow that has ended."""
ENDED = {"Complete", "SuccessCriteriaMet", "Failed", "FailureTarget"}
"""Conditions of a Job that has ended, or whose pods are only being removed."""


def why_ended(kube: Kube, owner: OwnerReference) -> str:
    """The reason why the owner of a job or a pod no longer needs it; empty while it does.

    Args:
        kube: the namespace.
        owner: an owner reference; one that is neither a Job nor a Workflow counts as running.
    """
    if owner["kind"] not in ("Job", "Workflow"):
        return ""
    name, current = f"{owner['kind']} {owner['name']}", _owner(kube, owner)
    if current is None or current["metadata"]["uid"] != owner["uid"]:  # a later object of the same name
        return f"{name} no longer exists"
    if "deletionTimestamp" in current["metadata"]:
        return f"{name} was deleted"
    # "Terminate" in KFP sets the deadline to 0 and keeps the Workflow, so its objects keep running (KFP 2.17).
    if current["spec"].get("activeDeadlineSeconds") == 0:
        return f"{name} was terminated"
    ended = true_conditions(current).keys() & ENDED or current.get("status", {}).get("phase") in ENDED_PHASES
    return f"{name} has ended" if ended else ""


def _owner(kube: Kube, owner: OwnerReference) -> Any:
    if owner["kind"] == "Job":
        return kube.call(kube.batch.read_namespaced_job, owner["name"], kube.namespace)
    group, _, version = owner["apiVersion"].partition("/")
    plural = f"{owner['kind'].lower()}s"
    return kube.call(kube.custom.get_namespaced_custom_object, group, version, kube.namespace, plural, owner["name"])
