"""What stands behind a launcher's pod and outlives it: a job belongs to that, and goes when it goes."""

import time
from collections.abc import Callable
from typing import Any

from understudy.launch.kube import Away, Kube

ASK = 1.5  # seconds between two questions to an API server that is away


def owner_reference(kube: Kube, pod: str, watch: Callable[[], None]) -> dict[str, Any] | None:
    """What stands behind a launcher's pod and outlives it: the Workflow of a KFP run, or a Job.

    Waits for an API server that is away; watch is called meanwhile.
    """
    while True:
        watch()
        try:
            found = kube.ask(kube.core.read_namespaced_pod, pod, kube.namespace)
            break
        except Away:
            time.sleep(ASK)
    owners = found["metadata"].get("ownerReferences") if found else None
    if not owners:
        return None
    return {key: owners[0][key] for key in ("apiVersion", "kind", "name", "uid")}
