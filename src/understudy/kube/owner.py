"""The owner of a launcher's pod, which outlives it: it owns the job too, so that the job is deleted with it."""

import os
import socket

from understudy.kube.api import Kube
from understudy.kube.objects import OwnerReference

KFP_POD = "KFP_POD_NAME"
"""Set in the pods of KFP's tasks."""


def owner_now(kube: Kube) -> OwnerReference | None:
    """The owner of this pod, which outlives it: the Workflow of a KFP run, or a Job.

    Raises:
        Unavailable: the API server does not answer now.
    """
    pod = os.environ.get(KFP_POD) or socket.gethostname()
    pod_object = kube.call(kube.core.read_namespaced_pod, pod, kube.namespace)
    owners = pod_object["metadata"].get("ownerReferences") if pod_object else None
    if not owners:
        return None
    first = owners[0]
    return {"apiVersion": first["apiVersion"], "kind": first["kind"], "name": first["name"], "uid": first["uid"]}
