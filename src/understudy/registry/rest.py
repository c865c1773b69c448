"""Requests to an MLflow server over its REST API, with the standard library: importing mlflow takes seconds."""

import base64
import json
import os
import ssl
from functools import cache
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from understudy.errors import Forbidden, InputError, UnderstudyError
from understudy.registry import pod_token

SECONDS = 5.0
WRITING = 60.0  # seconds; a busy database may take that long


def get(uri: str, endpoint: str, **query: str) -> Any:
    """The parsed response of a GET below /api/2.0/mlflow; None if the resource does not exist.

    Raises:
        Forbidden: the server denies access to this account.
        UnderstudyError: the server does not respond within seconds, or is not an MLflow server.
    """
    return _response(uri, f"{endpoint}?{urlencode(query)}", SECONDS)


def post(uri: str, endpoint: str, **content: Any) -> Any:
    """The parsed response of a POST below /api/2.0/mlflow.

    Raises:
        UnderstudyError: as for `get`, or the resource does not exist.
    """
    response = _response(uri, endpoint, WRITING, json.dumps(content).encode())
    if response is None:
        raise unusable(_server(urlsplit(uri)), f"{endpoint}: the run, model or version does not exist there")
    return response


def delete(uri: str, endpoint: str, **content: Any) -> Any:
    """The parsed response of a DELETE below /api/2.0/mlflow; None if the resource does not exist.

    Raises:
        UnderstudyError: as for `get`.
    """
    return _response(uri, endpoint, WRITING, json.dumps(content).encode(), "DELETE")


def _response(uri: str, target: str, seconds: float, content: bytes | None = None, method: str | None = None) -> Any:
    parts = urlsplit(uri)
    server = _server(parts)
    headers = {**_authorization(parts), **({"Content-Type": "application/json"} if content else {})}
    request = Request(f"{server}/api/2.0/mlflow/{target}", content, headers, method=method)
    try:
        with build_opener(_NoRedirect, *_handlers(parts.scheme)).open(request, timeout=seconds) as response:
            return json.load(response)
    except HTTPError as error:
        return _refused(server, error)
    except json.JSONDecodeError as error:
        raise UnderstudyError(f"{server}: this is not an MLflow tracking server; correct --tracking-uri") from error
    except (OSError, HTTPException, UnicodeDecodeError) as error:
        raise unusable(server, str(getattr(error, "reason", error))) from error


def _server(parts: SplitResult) -> str:
    netloc = parts.netloc.rpartition("@")[2]
    return urlunsplit(SplitResult(parts.scheme, netloc, parts.path.rstrip("/"), "", ""))


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect, since the credentials would be sent to any host that it names."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Return None, so that the redirect is raised as an error."""


def _refused(server: str, error: HTTPError) -> None:
    try:
        content = json.load(error)
        code, message = content["error_code"], str(content.get("message", ""))
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        code, message = None, ""
    if error.code in (401, 403):
        fix = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        why = f": {message}" if message else f"; {fix}"
        raise Forbidden(f"{server}: MLflow refuses access ({error.code}){why}") from error
    if code == "RESOURCE_DOES_NOT_EXIST":
        return
    if code is None and error.code == 404:
        raise UnderstudyError(f"{server}: this is not an MLflow tracking server; correct --tracking-uri") from error
    raise unusable(server, f"{error.code} {code or error.reason}") from error


def unusable(server: str, reason: str) -> UnderstudyError:
    """The error for a server that cannot be used now."""
    return UnderstudyError(
        f"{server}: MLflow cannot be used ({reason}). All results are in the store: start the server, or correct "
        "--tracking-uri or MLFLOW_TRACKING_URI, and run again; nothing is trained twice."
    )


def _authorization(parts: SplitResult) -> dict[str, str]:
    if parts.netloc.startswith("@"):  # an anonymous request, by this form of the address
        return {}
    user = unquote(parts.username or "") or os.environ.get("MLFLOW_TRACKING_USERNAME")
    password = unquote(parts.password or "") or os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    token = os.environ.get("MLFLOW_TRACKING_TOKEN", "").strip()  # a Secret created from a file ends with a newline
    if not token.isprintable():
        raise InputError("MLFLOW_TRACKING_TOKEN: it holds characters that a token cannot have; set it again")
    if user:
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    token = token or pod_token.token() or ""
    return {"Authorization": f"Bearer {token}"} if token else {}


def _handlers(scheme: str) -> list[HTTPSHandler]:
    return [HTTPSHandler(context=_tls())] if scheme == "https" else []


@cache  # loading the certificates takes longer than a request
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() == "true":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
