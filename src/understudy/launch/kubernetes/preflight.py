"""What a job needs of the cluster's operator, looked at before anything is submitted."""

from understudy.errors import InputError
from understudy.launch.kubernetes import trainjob
from understudy.launch.kubernetes.api import Kube
from understudy.launch.kubernetes.kind import TRAINJOB, JobKind
from understudy.launch.kubernetes.settings import Cluster
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
