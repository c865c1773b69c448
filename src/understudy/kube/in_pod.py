"""Requests of a pod to the API server with its token, without the Kubernetes client: importing that takes 60 MB."""

import json
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, Request, build_opener

from understudy.errors import Forbidden, UnderstudyError

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
FOLDER = "UNDERSTUDY_SERVICE_ACCOUNT"
"""Variable with the folder of the token and the API server's certificate, if it is not MOUNTED."""
MOUNTED = "/var/run/secrets/kubernetes.io/serviceaccount"
SECONDS = 5.0


def in_cluster() -> bool:
    """Whether this process runs in a pod, with an API server."""
    return HOST in os.environ


def token() -> str:
    """The pod's token for the API server, read anew each time: the kubelet replaces it every hour.

    Raises:
        UnderstudyError: the pod has none.
    """
    return _read("token").strip()


def post(path: str, content: Any) -> Any:
    """The API server's answer to a POST.

    Raises:
        Forbidden: the pod's account lacks the right.
        UnderstudyError: the server refuses for another reason, or does not answer.
    """
    host = os.environ.get(HOST, "")
    host = f"[{host}]" if ":" in host else host
    headers = {"Authorization": f"Bearer {token()}", "Content-Type": "application/json"}
    request = Request(f"https://{host}:{os.environ.get(PORT, '443')}{path}", json.dumps(content).encode(), headers)
    context = ssl.create_default_context(cadata=_read("ca.crt"))
    try:
        with build_opener(HTTPSHandler(context=context)).open(request, timeout=SECONDS) as response:
            return json.load(response)
    except HTTPError as error:
        error.close()
        answered = f"the API server answers {path} with {error.code}"
        if error.code == 403:
            raise Forbidden(f"{answered}; the pod's account has no permission for that (RBAC)") from error
        raise UnderstudyError(answered) from error
    except (OSError, ValueError) as error:
        raise UnderstudyError(f"the API server does not answer {path} ({error})") from error


def _read(name: str) -> str:
    path = Path(os.environ.get(FOLDER, MOUNTED)) / name
    try:
        return path.read_text()
    except OSError as error:
        raise UnderstudyError(f"{path}: the pod has no service account token ({error.strerror})") from error
