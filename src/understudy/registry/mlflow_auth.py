"""Authentication of MLflow's own client with the pod's token: a provider, listed in pyproject.toml's entry points.

The token is read for each request. MLFLOW_TRACKING_TOKEN would be the token from the start of the process.
"""

from typing import Any

from mlflow.tracking.request_auth.abstract_request_auth_provider import RequestAuthProvider

from understudy.registry import pod_token


class PodToken(RequestAuthProvider):  # type: ignore[misc]
    """Selected by MLFLOW_TRACKING_AUTH."""

    def get_name(self) -> str:
        """The value of MLFLOW_TRACKING_AUTH."""
        return pod_token.POD

    def get_auth(self) -> Any:
        """The callable that `requests` applies to every request (requests.auth.AuthBase)."""
        return _signed


def _signed(request: Any) -> Any:
    """Add the token to a request, unless MLflow has added a password or another token."""
    if "Authorization" not in request.headers:
        request.headers["Authorization"] = f"Bearer {pod_token.token()}"
    return request
