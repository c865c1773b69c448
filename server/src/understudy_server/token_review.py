"""Verification of a pod's token by the API server that issued it (TokenReview of authentication.k8s.io/v1).

Unlike a signature, the API server shows whether the pod and the service account still exist.
"""

from understudy.errors import UnderstudyError
from understudy.kube import in_pod
from understudy.registry.pod_token import AUDIENCE
from understudy_server.teams import SERVICE_ACCOUNT

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


class TokenRefusedError(UnderstudyError):
    """A token that is not, or no longer, valid for this server."""


def service_account(token: str) -> str:
    """The name of a token's service account.

    Raises:
        TokenRefusedError: the API server rejects it, or it was issued for another audience.
        UnderstudyError: the API server does not answer.
    """
    if not in_pod.in_cluster():
        raise TokenRefusedError("this server is not in a cluster, and cannot verify a service account's token")
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    status = in_pod.post(PATH, {**kind, "spec": {"token": token, "audiences": [AUDIENCE]}}).get("status", {})
    name = str(status.get("user", {}).get("username", ""))
    if not status.get("authenticated"):
        raise TokenRefusedError(f"the cluster rejects this token for {AUDIENCE}: it has expired, or its pod is gone")
    if AUDIENCE not in status.get("audiences", ()):  # an API server without audiences accepts all its tokens
        raise TokenRefusedError(f"this token was not issued for the audience {AUDIENCE}")
    if not SERVICE_ACCOUNT.fullmatch(name):
        raise TokenRefusedError(f"{name} is not a service account")
    return name
