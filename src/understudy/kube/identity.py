"""The identity of jobs and pods: a job's name and labels, and the labels that network policies select."""

from dataclasses import dataclass

from understudy.kube.objects import Metadata, OwnerReference
from understudy.store.files import sha256

NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
"""A label of pods that end by themselves, unlike a service mesh's sidecar. The sidecar would also intercept the ports
of the ranks' rendezvous. Without Istio the label has no effect."""
PARTS = {"app.kubernetes.io/name": "understudy", "app.kubernetes.io/component": "training"}
DRIVER = {"app.kubernetes.io/name": "understudy", "app.kubernetes.io/component": "driver"}
"""Pods that launch and watch."""
FETCHES = {"understudy.fetches": "true"}
"""Pods that fetch data and models of a recipe: only these have egress, and the proxy's variables for it."""
RUN, STEP, KEY = "understudy.run", "understudy.step", "understudy.key"


@dataclass(frozen=True)
class Identity:
    """The identity of a job: its run and step, and the key of its work."""

    run: str
    step: str
    key: str

    @property
    def name(self) -> str:
        """The object's name: the same for every launcher of this step of this run, and for no other (DNS-1035)."""
        return f"{self.step}-{self.key[:10]}-{sha256(self.run.encode())[:8]}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that select it."""
        return {**PARTS, RUN: self.run[:63], STEP: self.step, KEY: self.key[:40]}

    def metadata(self, queue: str | None, owner: OwnerReference | None) -> Metadata:
        """A job's name, labels and owner.

        Args:
            queue: Kueue's LocalQueue; Kueue manages the jobs with its label.
            owner: an owner reference; the job is deleted with this object.
        """
        labels = self.labels | ({"kueue.x-k8s.io/queue-name": queue} if queue else {})
        return {"name": self.name, "labels": labels, "ownerReferences": [owner] if owner else []}
