"""Checks of the cluster's operator before a job is submitted."""

from contextlib import suppress

from understudy.errors import InputError
from understudy.kube.api import Kube, Refused
from understudy.kube.job_state import state_of
from understudy.kube.kind import KINDS, TRAINJOB, JobKind
from understudy.kube.objects import KubernetesObject
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes.rendering import trainjob
from understudy.recipe import Resources


def check(kube: Kube, kind: JobKind, cluster: Cluster, resources: Resources, location: str) -> None:
    """Check that the operator is installed and can meet a job's requirements.

    Args:
        kube: client of the namespace.
        kind: the kind of job.
        cluster: the cluster's settings.
        resources: the job's resources in the recipe.
        location: the recipe's section of these resources.

    Raises:
        InputError: it is not installed, or cannot; the message names the setting and the fix.
    """
    if not kube.has(kind):
        raise InputError(kind.missing)
    if kind is TRAINJOB:
        trainjob.check(kube, cluster, resources, location)


def refuse_duplicate(kube: Kube, kind: JobKind, selector: str) -> None:
    """Reject a job while one of another kind does the same work: each would end the other's ranks.

    Raises:
        InputError: such a job exists; the cluster's settings named another launcher when it was submitted.
    """
    for kind_name in KINDS.values():
        if kind_name is kind or not kube.has(kind_name):
            continue
        with suppress(Refused):  # a right that only the other launcher needs
            duplicates = [job for job in kube.jobs(kind_name, selector) if not _has_ended(job, kind_name)]
            if duplicates:
                name = duplicates[0]["metadata"]["name"]
                raise InputError(
                    f"the {kind_name.name} {name} already does this work. Let it end, delete it, or set "
                    "`launcher` in the cluster's settings to its former value"
                )


def _has_ended(job: KubernetesObject, kind: JobKind) -> bool:
    return state_of(job, (), kind=kind).has_ended
