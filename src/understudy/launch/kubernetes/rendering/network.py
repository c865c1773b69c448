"""The NetworkPolicy of one job: its ranks speak to each other. It only adds to `ranks` of manifests/base/network.yaml.

A policy cannot say "whoever has the same label as I have". So each job of several nodes has one of its own, with the
key of its work, made before its pods and deleted with its run. The right to make policies would be a right to open any
way: what a launcher's may say is checked by the API server (the admission policy understudy-networks).
"""

from understudy.kube.identity import KEY, PARTS, Identity
from understudy.kube.objects import KubernetesObject, OwnerReference

RANKS = "ranks"
"""The policy that keeps all ranks of a namespace from everybody. Where it is not, nothing has to be opened."""
COMPONENT = "app.kubernetes.io/component"


def render(identity: Identity, owner: OwnerReference | None) -> KubernetesObject:
    """The policy, as the API takes it: by the job's key, which a job of another run that does the same work has too."""
    chosen = {"matchLabels": {COMPONENT: PARTS[COMPONENT], KEY: identity.labels[KEY]}}
    peers = [{"podSelector": chosen}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": identity.metadata(None, owner),
        "spec": {
            "podSelector": chosen,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peers}],
            "egress": [{"to": peers}],
        },
    }
