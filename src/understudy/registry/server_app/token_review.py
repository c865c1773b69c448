"""A pod's token, checked by the API server that issued it (TokenReview of authentication.k8s.io/v1).

The API server knows what a signature does not say: whether the pod and the service account are still there.
"""

from understudy.errors import UnderstudyError
from understudy.kube import in_pod
from understudy.registry.pod_token import AUDIENCE
from understudy.registry.server_app.teams import SERVICE_ACCOUNT

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


class TokenRefusedError(UnderstudyError):
    """A token that is not, or no longer, good for this server."""


def service_account(token: str) -> str:
    """The name of the service account whose token this is.

    Raises:
        TokenRefusedError: the API server does not know it, or it was issued for another audience.
        UnderstudyError: the API server cannot be asked.
    """
    if not in_pod.in_cluster():
        raise TokenRefusedError("this server is in no cluster that could check a service account's token")
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    status = in_pod.post(PATH, {**kind, "spec": {"token": token, "audiences": [AUDIENCE]}}).get("status", {})
    name = str(status.get("user", {}).get("username", ""))
    if not status.get("authenticated"):
        raise TokenRefusedError(f"the cluster takes no such token for {AUDIENCE}; it has expired, or its pod is gone")
    if AUDIENCE not in status.get("audiences", ()):  # an API server without audiences takes any token of its own
        raise TokenRefusedError(f"this token was not issued for the audience {AUDIENCE}")
    if not SERVICE_ACCOUNT.fullmatch(name):
        raise TokenRefusedError(f"{name} is no service account")
    return name
