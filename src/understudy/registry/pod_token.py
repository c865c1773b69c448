"""How a pod signs in to MLflow: with a token of its service account for this audience alone, which lives an hour.

MLFLOW_TRACKING_AUTH=understudy asks for it. The kubelet puts it into a file, and a new one in time. Where nothing can
put a file into the pod (kfp-kubernetes knows no projected volumes), the pod asks the API server. The token that every
pod has is not sent: it is for the API server, and whoever got it could do there what the pod may.
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
"""What MLFLOW_TRACKING_AUTH says; the name of MLflow's provider in mlflow_auth.py."""
FOLDER = "/var/run/secrets/understudy/mlflow"
PLACE = "UNDERSTUDY_MLFLOW_TOKEN"
"""The folder with the file `token`, unless it is FOLDER."""
LIFE = 3600  # seconds; the kubelet replaces a token when a fifth of it is left
_SOURCE = {"audience": AUDIENCE, "expirationSeconds": LIFE, "path": "token"}
VOLUME: VolumeSource = {"projected": {"sources": [{"serviceAccountToken": _SOURCE}]}}
"""The volume to mount at FOLDER."""
FRESH = 0.8  # of its life, after which another one is asked for


def token() -> str | None:
    """The token to send now; None where the pod has other ways to sign in.

    Raises:
        Forbidden: the pod's account may not ask for one.
        UnderstudyError: there should be one, and is none.
    """
    if os.environ.get(SETTING) != POD:
        return None
    place = Path(os.environ.get(PLACE, FOLDER))
    return _from(place / "token") if place.is_dir() else REQUESTED.get()


def _from(path: Path) -> str:
    try:
        found = path.read_text().strip()  # for each request: it is replaced while the run goes on
    except OSError as error:
        raise UnderstudyError(f"{path}: there is no token for MLflow ({error.strerror}); mount one there") from error
    if not found:
        raise UnderstudyError(f"{path}: is empty; mount a token for MLflow there")
    return found


class Requested:
    """The token that the API server gave last, until most of its life is over."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._token, self._until = "", 0.0

    def get(self) -> str:
        """A token that is good for some minutes more."""
        with self._lock:
            if time.time() >= self._until:
                self._token = _requested()
                now = time.time()
                self._until = now + FRESH * (float(_payload(self._token)["exp"]) - now)
            return self._token


REQUESTED = Requested()


def _requested() -> str:
    """A new token of the pod's own account, which ends with the pod (TokenRequest of authentication.k8s.io/v1)."""
    who = _payload(in_pod.token()).get("kubernetes.io", {})
    if not {"namespace", "serviceaccount", "pod"} <= who.keys():
        raise UnderstudyError("the pod's token does not say of which pod it is; mount a projected one")
    pod = {"kind": "Pod", "apiVersion": "v1", **who["pod"]}
    spec = {"audiences": [AUDIENCE], "expirationSeconds": LIFE, "boundObjectRef": pod}
    path = f"/api/v1/namespaces/{who['namespace']}/serviceaccounts/{who['serviceaccount']['name']}/token"
    try:
        answer = in_pod.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    except Forbidden as error:
        account = who["serviceaccount"]["name"]
        raise Forbidden(
            f"{error}. A task of KFP signs in to MLflow with a token that it asks for: let {account} create "
            "serviceaccounts/token of itself, as manifests/components/kfp and kubeflow-profile do "
            "(docs/operating/kfp.md)"
        ) from error
    return str(answer["status"]["token"])


def _payload(signed: str) -> dict[str, Any]:
    """What a token says (RFC 7519); whoever receives it checks the signature."""
    try:
        part = signed.split(".")[1]
        found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, IndexError) as error:
        raise UnderstudyError("the pod's token cannot be read; is it one of a service account?") from error
    return found
