"""Who a pod is: a job's name and labels, by which it is found, and the labels that the network policies go by."""

from dataclasses import dataclass

from understudy.kube.objects import Metadata, OwnerReference
from understudy.store.files import sha256

NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
"""A label of pods that end by themselves, which a service mesh's proxy beside them never does. It also stands before
the ports that ranks meet on. Without Istio it means nothing."""
PARTS = {"app.kubernetes.io/name": "understudy", "app.kubernetes.io/component": "training"}
DRIVER = {"app.kubernetes.io/name": "understudy", "app.kubernetes.io/component": "driver"}
"""Pods that launch and watch."""
FETCHES = {"understudy.fetches": "true"}
"""Those of them that fetch what a recipe names: a way out, and to it the proxy's variables, have these alone."""
RUN, STEP, KEY = "understudy.run", "understudy.step", "understudy.key"


@dataclass(frozen=True)
class Identity:
    """Which job this is: a step of a run, and the key of the work that it does."""

    run: str
    step: str
    key: str

    @property
    def name(self) -> str:
        """The object's name: the same for every launcher of this step of this run, and for no other (DNS-1035)."""
        return f"{self.step}-{self.key[:10]}-{sha256(self.run.encode())[:8]}"

    @property
    def labels(self) -> dict[str, str]:
        """By these it is found."""
        return {**PARTS, RUN: self.run[:63], STEP: self.step, KEY: self.key[:40]}

    def metadata(self, queue: str | None, owner: OwnerReference | None) -> Metadata:
        """A job's name, labels and owner.

        Args:
            queue: Kueue's LocalQueue; Kueue knows by the label which jobs are its own.
            owner: an owner reference; the job is deleted with this object.
        """
        labels = self.labels | ({"kueue.x-k8s.io/queue-name": queue} if queue else {})
        return {"name": self.name, "labels": labels, "ownerReferences": [owner] if owner else []}
