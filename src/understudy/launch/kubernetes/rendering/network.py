"""The NetworkPolicy of one job, which lets its ranks communicate. It adds to `ranks` of manifests/base/network.yaml.

A policy cannot select "pods with the same label as mine". So each job of several nodes has a separate policy, with the
key of its work, created before its pods and deleted with its run. The right to create policies could open any route:
therefore the API server checks those of launchers (the admission policy understudy-networks).
"""

from understudy.kube.identity import KEY, PARTS, Identity
from understudy.kube.objects import KubernetesObject, OwnerReference

RANKS = "ranks"
"""The policy that isolates all ranks of a namespace. Without it, no job needs a policy."""
COMPONENT = "app.kubernetes.io/component"


def render(identity: Identity, owner: OwnerReference | None) -> KubernetesObject:
    """The manifest of the policy. It selects pods by the job's key, shared by jobs of other runs for the same work."""
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
