"""MLflow's own client signs in with the pod's token: a provider that MLflow finds among pyproject.toml's entry points.

The token is read for each request. MLFLOW_TRACKING_TOKEN would be the one that was good when the process began.
"""

from typing import Any

from mlflow.tracking.request_auth.abstract_request_auth_provider import RequestAuthProvider

from understudy.registry import pod_token


class PodToken(RequestAuthProvider):  # type: ignore[misc]
    """Selected by MLFLOW_TRACKING_AUTH."""

    def get_name(self) -> str:
        """What MLFLOW_TRACKING_AUTH says."""
        return pod_token.POD

    def get_auth(self) -> Any:
        """What `requests` calls with every request (requests.auth.AuthBase)."""
        return _signed


def _signed(request: Any) -> Any:
    """The request with the token, unless MLflow has put a password or another token there."""
    if "Authorization" not in request.headers:
        request.headers["Authorization"] = f"Bearer {pod_token.token()}"
    return request
