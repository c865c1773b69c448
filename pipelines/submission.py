"""Submit a recipe's pipeline to a KFP API server, and follow its run."""

import json
import re
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp_server_api.exceptions import ApiException
from urllib3.exceptions import HTTPError

from understudy.errors import FAILED, InputError, UnderstudyError
from understudy.pipelines.compiled import write
from understudy.pipelines.last_words import reasons
from understudy.recipe import Recipe

BAD = {"FAILED", "CANCELED"}
ENDED = {"SUCCEEDED", "SKIPPED", *BAD}
USER = "kubeflow-userid"  # the header in which Kubeflow's gateway passes the user
VERSION = "/apis/v1beta1/healthz"  # returns the version; the generated client's health check does not
RUNS = "/apis/v1beta1/runs"
UNKNOWN = "KFP does not say why"
EVERY = 5.0  # seconds between polls of a run
PATIENCE = 300.0  # seconds that a server may be unreachable while a run is followed
RENEWAL = 60.0  # seconds that it may refuse a token until the file has a new one


@dataclass(frozen=True)
class Server:
    """A KFP API server and its authentication."""

    host: str
    namespace: str | None
    token: Callable[[], str | None]
    """Reads the current token: one in a file may be replaced while a run is followed."""
    ui: str | None = None
    """The address of KFP's pages, if it is another one."""
    user: str | None = None
    """The user's name, if no gateway in front of the host sets the header."""

    def client(self) -> Any:
        """KFP's client.

        Raises:
            InputError: the server does not answer, or does not accept the token.
        """
        from kfp.client import Client

        class AsksOnce(Client):  # type: ignore[misc]
            """Without a namespace, the client queries for multi-user mode: five times, and fails without a reason."""

            def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
                del sleep_duration
                return self._healthz_api.healthz_service_get_healthz()

        with warnings.catch_warnings(), self.answering():
            warnings.simplefilter("ignore", FutureWarning)
            client = AsksOnce(host=self.host, existing_token=self.token(), namespace=self.namespace or "kubeflow")
        if self.user:
            client._run_api.api_client.set_default_header(USER, self.user)  # shared by all of its APIs
        return client

    def answering(self) -> "_Words":
        """A context that turns the server's errors into messages."""
        return _Words(self.host)

    def page(self, run: str) -> str:
        """The address of a run's page."""
        return f"{(self.ui or self.host).rstrip('/')}/#/runs/details/{run}"


class _Words:
    def __init__(self, host: str) -> None:
        self._host = host

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ApiException) and error.status in (401, 403):
            raise InputError(
                f"{self._host}: KFP refuses this token ({error.status}); it may have expired: put a new one into "
                "KFP_TOKEN, or into the file that --token-file names"
            ) from error
        if isinstance(error, ApiException):
            raise UnderstudyError(f"{self._host}: KFP says {error.status} {error.reason}") from error
        if isinstance(error, HTTPError | OSError | TimeoutError):
            raise InputError(
                f"{self._host}: no KFP API server answers here ({type(error).__name__}); correct --host or KFP_HOST"
            ) from error


def submit(server: Server, recipe: Recipe, images: str, experiment: str | None) -> str:
    """Start a run of a recipe's pipeline.

    Args:
        server: the KFP server.
        recipe: the recipe.
        images: PREFIX:TAG of the images.
        experiment: KFP's experiment; the recipe's if None.

    Returns:
        The run's id.

    Raises:
        InputError: the server's minor version differs from the client's, which compiles the pipeline for its version.
        UnderstudyError: the server refuses the run.
    """
    client = server.client()
    _refuse_another_version(server, client)
    with tempfile.TemporaryDirectory() as folder:
        package = write(recipe, images, Path(folder))[0]
        with server.answering(), redirect_stdout(None):  # KFP's client prints addresses, one of them twice
            run = client.create_run_from_pipeline_package(
                str(package),
                run_name=f"{recipe.name} {time.strftime('%Y-%m-%d %H:%M:%S')}",
                experiment_name=experiment or recipe.experiment,
                namespace=server.namespace,
                enable_caching=False,
            )
    return str(run.run_id)


def _refuse_another_version(server: Server, client: Any) -> None:
    """Compare the server's version with the client's; a custom build may have none to compare."""
    from kfp import __version__

    with server.answering():
        api = client._run_api.api_client
        answer = api.call_api(VERSION, "GET", auth_settings=["Bearer"], _preload_content=False)
    try:
        server_version = str(json.loads(answer.data)["tag_name"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{server.host}: this is no KFP API server; correct --host or KFP_HOST") from error
    server_minor, client_minor = (re.match(r"v?(\d+\.\d+)\.", version) for version in (server_version, __version__))
    if server_minor and client_minor and server_minor[1] != client_minor[1]:
        raise InputError(
            f"{server.host}: KFP {server_version}, and pipelines are compiled here for {client_minor[1]}: another "
            f"version may run them differently, or not at all. Use a server of {client_minor[1]}, or the version of "
            f"understudy for KFP {server_minor[1]}"
        )


def follow(server: Server, run: str, tell: Callable[[str], None]) -> int:
    """Report a run's state whenever it changes, until it ends.

    Returns:
        0 when all of its tasks succeeded, 1 otherwise.
    """
    client, reported_state, unreachable_seconds, refused_seconds = None, "", 0.0, 0.0
    while True:
        try:
            client = client or server.client()
            state = _state(server, client, run)
            reasons_text = f": {_reasons(server, client, run)}; see {server.page(run)}" if state in BAD else ""
        except UnderstudyError as error:
            status = getattr(error.__cause__, "status", 500)
            if status in (401, 403):
                refused_seconds += EVERY
            else:
                unreachable_seconds, refused_seconds = unreachable_seconds + EVERY, 0.0
            if unreachable_seconds > PATIENCE or refused_seconds > RENEWAL or status == 404:
                raise
            client = None  # the next client reads the token again
            time.sleep(EVERY)
            continue
        unreachable_seconds = refused_seconds = 0.0
        if state and state != reported_state:  # a new run has none yet
            reported_state = state
            tell(f"{state.lower()}{reasons_text}")
        if state in ENDED:
            return 0 if state == "SUCCEEDED" else FAILED
        time.sleep(EVERY)


def _state(server: Server, client: Any, run: str) -> str:
    with server.answering():
        return str(client.get_run(run).state or "")


def _reasons(server: Server, client: Any, run: str) -> str:
    """Why a run failed. Only API v1beta1 returns the run's Workflow."""
    with server.answering():
        api = client._run_api.api_client
        answer = api.call_api(f"{RUNS}/{run}", "GET", auth_settings=["Bearer"], _preload_content=False)
    try:
        workflow = json.loads(json.loads(answer.data)["pipeline_runtime"]["workflow_manifest"])
    except (ValueError, KeyError, TypeError):
        return UNKNOWN
    return "; ".join(reasons(workflow)) or UNKNOWN
