"""Authentication of a pod to MLflow: a token of its service account for this audience only, valid for an hour.

MLFLOW_TRACKING_AUTH=understudy enables it. The kubelet writes the token to a file, and renews it in time. Without a
projected volume (kfp-kubernetes does not support them), the pod requests a token from the API server. The pod's
default token is never sent: it is for the API server, and its recipient would have the pod's rights there.
"""

import base64
import json
import os
import time
from pathlib import Path
from threading import Lock
from typing import Any

from understudy.errors import Forbidden, UnderstudyError
from understudy.kube import in_pod
from understudy.kube.objects import VolumeSource

AUDIENCE = "mlflow"
SETTING = "MLFLOW_TRACKING_AUTH"
POD = "understudy"
"""The value of MLFLOW_TRACKING_AUTH, and the name of MLflow's provider in mlflow_auth.py."""
FOLDER = "/var/run/secrets/understudy/mlflow"
FOLDER_VARIABLE = "UNDERSTUDY_MLFLOW_TOKEN"
"""The variable with the folder of the file `token`; FOLDER if it is not set."""
LIFE = 3600  # seconds; the kubelet replaces a token when a fifth of it is left
_SOURCE = {"audience": AUDIENCE, "expirationSeconds": LIFE, "path": "token"}
VOLUME: VolumeSource = {"projected": {"sources": [{"serviceAccountToken": _SOURCE}]}}
"""The volume to mount at FOLDER."""
FRESH = 0.8  # fraction of a token's life after which a new one is requested


def token() -> str | None:
    """The token to send now; None if the pod authenticates in another way.

    Raises:
        Forbidden: the pod's account may not request one.
        UnderstudyError: the token is missing.
    """
    if os.environ.get(SETTING) != POD:
        return None
    folder = Path(os.environ.get(FOLDER_VARIABLE, FOLDER))
    return _from(folder / "token") if folder.is_dir() else REQUESTED.get()


def _from(path: Path) -> str:
    try:
        token_text = path.read_text().strip()  # for each request: the kubelet replaces it during the run
    except OSError as error:
        raise UnderstudyError(f"{path}: there is no token for MLflow ({error.strerror}); mount one there") from error
    if not token_text:
        raise UnderstudyError(f"{path}: is empty; mount a token for MLflow there")
    return token_text


class Requested:
    """Caches the last token of the API server for most of its life."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._token, self._until = "", 0.0

    def get(self) -> str:
        """A token that is valid for some minutes more."""
        with self._lock:
            if time.time() >= self._until:
                self._token = _requested()
                now = time.time()
                self._until = now + FRESH * (float(_payload(self._token)["exp"]) - now)
            return self._token


REQUESTED = Requested()


def _requested() -> str:
    """Request a token of the pod's service account that expires with the pod (authentication.k8s.io/v1)."""
    claims = _payload(in_pod.token()).get("kubernetes.io", {})
    if not {"namespace", "serviceaccount", "pod"} <= claims.keys():
        raise UnderstudyError("the pod's token does not say of which pod it is; mount a projected one")
    pod = {"kind": "Pod", "apiVersion": "v1", **claims["pod"]}
    spec = {"audiences": [AUDIENCE], "expirationSeconds": LIFE, "boundObjectRef": pod}
    path = f"/api/v1/namespaces/{claims['namespace']}/serviceaccounts/{claims['serviceaccount']['name']}/token"
    try:
        response = in_pod.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    except Forbidden as error:
        account = claims["serviceaccount"]["name"]
        raise Forbidden(
            f"{error}. A task of KFP signs in to MLflow with a token that it asks for: let {account} create "
            "serviceaccounts/token of itself, as manifests/components/kfp and kubeflow-profile do "
            "(docs/operating/kfp.md)"
        ) from error
    return str(response["status"]["token"])


def _payload(signed: str) -> dict[str, Any]:
    """The claims of a token (RFC 7519); its recipient verifies the signature."""
    try:
        part = signed.split(".")[1]
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, IndexError) as error:
        raise UnderstudyError("the pod's token cannot be read; is it one of a service account?") from error
    return claims
