"""What a job needs of the cluster's operator, looked at before anything is submitted."""

from contextlib import suppress

from understudy.errors import InputError
from understudy.kube.api import Kube, Refused
from understudy.kube.job_state import state_of
from understudy.kube.kind import KINDS, TRAINJOB, JobKind
from understudy.kube.objects import KubernetesObject
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes.rendering import trainjob
from understudy.recipe import Resources


def check(kube: Kube, kind: JobKind, cluster: Cluster, resources: Resources, where: str) -> None:
    """Whether the operator is there and can give a job what it asks for.

    Args:
        kube: the namespace.
        kind: what the job is to be.
        cluster: the cluster's settings.
        resources: what the recipe gives to the job.
        where: the recipe's section that says so.

    Raises:
        InputError: it is not, or cannot; the message names the setting and the fix.
    """
    if not kube.has(kind):
        raise InputError(kind.missing)
    if kind is TRAINJOB:
        trainjob.check(kube, cluster, resources, where)


def refuse_duplicate(kube: Kube, kind: JobKind, selector: str) -> None:
    """Refuse to submit a job while one of another kind does the same work: each would end the other's ranks.

    Raises:
        InputError: there is one, since the cluster's settings named another launcher when it was submitted.
    """
    for other in KINDS.values():
        if other is kind or not kube.has(other):
            continue
        with suppress(Refused):  # a right that only the other launcher needs
            duplicates = [job for job in kube.jobs(other, selector) if not _has_ended(job, other)]
            if duplicates:
                name = duplicates[0]["metadata"]["name"]
                raise InputError(
                    f"the {other.name} {name} already does this work. Let it end, delete it, or set "
                    "`launcher` in the cluster's settings to its former value"
                )


def _has_ended(job: KubernetesObject, kind: JobKind) -> bool:
    return state_of(job, (), kind=kind).has_ended
