"""What a promoted version needs stays as it is: its files, the logged model and the run that they are of, the evidence.

The alias points to a version, and a version to files that the account which made them could replace, or delete with
their run or experiment. All files go through this server, whose accounts know no bucket. So no copy is made: from the
promotion on the server lets nobody but an admin write there.
"""

import posixpath
from collections.abc import Callable
from functools import partial
from typing import Any

from flask import request
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
from mlflow.protos.service_pb2 import (
    DeleteExperiment,
    DeleteLoggedModel,
    DeleteLoggedModelTag,
    DeleteRun,
    DeleteTag,
    FinalizeLoggedModel,
    LogBatch,
    LogInputs,
    LogLoggedModelParamsRequest,
    LogMetric,
    LogModel,
    LogOutputs,
    LogParam,
    MlflowService,
    SetLoggedModelTags,
    SetTag,
    UpdateRun,
)
from mlflow.server import auth, handlers

from understudy.registry.server_app.kept_table import Kind, needed
from understudy.registry.server_app.kept_table import keep as keep_rows

ROOT = "mlflow-artifacts:/"


def _run(message: Any) -> str:
    return str(message.run_id or getattr(message, "run_uuid", ""))


def _logged_model(_: Any) -> str:
    return str((request.view_args or {})["model_id"])


CHANGES: dict[type[object], tuple[Kind, Callable[[Any], str]]] = {
    **dict.fromkeys(
        (DeleteRun, UpdateRun, SetTag, DeleteTag, LogMetric, LogParam, LogBatch, LogModel, LogInputs, LogOutputs),
        ("run", _run),
    ),
    **dict.fromkeys(
        (DeleteLoggedModel, FinalizeLoggedModel, SetLoggedModelTags, DeleteLoggedModelTag, LogLoggedModelParamsRequest),
        ("logged-model", _logged_model),
    ),
    DeleteExperiment: ("experiment", lambda message: str(message.experiment_id)),
}
"""The requests that change one of these, and which one."""


def keep(version: Any) -> None:
    """Keep what a model's version needs, from now on."""
    words = f"version {version.version} of {version.name}, which was promoted"
    things: set[tuple[Kind, str]] = set()
    place = handlers._get_model_registry_store().get_model_version_download_uri(version.name, version.version)
    for files in (place, *_files_of_run(version.run_id)):
        if files.startswith(ROOT):
            things |= _things(posixpath.normpath(files.removeprefix(ROOT)).strip("/"))
    if version.run_id:
        things.add(("run", version.run_id))
    keep_rows(auth.store.engine, dict.fromkeys(things, words))


def _files_of_run(run_id: str | None) -> list[str]:
    """The place of a run's files: the evidence; nothing for a run that is not there."""
    if not run_id:
        return []
    try:
        return [str(handlers._get_tracking_store().get_run(run_id).info.artifact_uri)]
    except MlflowException:
        return []


def _things(place: str) -> set[tuple[Kind, str]]:
    """A place of files, EXPERIMENT/RUN/... or EXPERIMENT/models/MODEL/..., and what MLflow has there."""
    experiment, *rest = place.split("/")
    things: set[tuple[Kind, str]] = {("files", place), ("experiment", experiment)}
    if len(rest) > 1 and rest[0] == "models":
        things |= {("logged-model", rest[1]), ("files", f"{experiment}/models/{rest[1]}")}
    elif rest:
        things |= {("run", rest[0])}
    return things


def guard_kept() -> None:
    """Put this rule before MLflow's own check of every request that writes to a run, model, experiment or file."""
    guarded = set()
    for path, kind, methods in handlers.get_service_endpoints(MlflowService, lambda kind: kind):
        if kind not in CHANGES:
            continue
        guarded.add(kind)
        for method in methods:
            table, key = _validators(path, method)
            table[key] = partial(_allowed, kind, table[key])
    assert guarded == CHANGES.keys(), "this MLflow has other requests; some would be unguarded"
    flask, native = auth._authorize_flask_artifact_proxy, auth._authorize_fastapi_artifact_proxy
    auth._authorize_flask_artifact_proxy = partial(_flask_files_allowed, flask)
    auth._authorize_fastapi_artifact_proxy = partial(_native_files_allowed, native)


def _validators(path: str, method: str) -> tuple[dict[Any, Any], Any]:
    """MLflow's table with the check of a request, and its key there."""
    if "<" in path:
        return auth.LOGGED_MODEL_BEFORE_REQUEST_VALIDATORS, (auth._re_compile_path(path), method)
    return auth.BEFORE_REQUEST_VALIDATORS, (path, method)


def _allowed(kind: Any, checked: Callable[[], bool]) -> bool:
    sort, named = CHANGES[kind]
    name = named(handlers._get_request_message(kind()))  # read as the handler will read it
    needed_by = needed(auth.store.engine, sort, [name])
    if needed_by:
        said = f"{sort.replace('-', ' ')} {name} stays as it is: {needed_by}, needs it. An admin may change it."
        raise MlflowException(said, PERMISSION_DENIED)
    return checked()


def _flask_files_allowed(checked: Callable[[str], bool], action: str) -> bool:
    return _may_write(auth._artifact_proxy_path(), action) and checked(action)


def _native_files_allowed(
    checked: Callable[[str, str, str | None, str], bool], path: str, username: str, query_path: str | None, action: str
) -> bool:
    named = auth._artifact_proxy_path_from_request_path(path, query_path)
    return _may_write(named, action) and checked(path, username, query_path, action)


def _may_write(path: str | None, action: str) -> bool:
    """Whether no promoted version needs the files at a path of this server."""
    if action == "read" or not path:
        return True
    canonical = auth._canonical_artifact_proxy_path(path)
    if canonical is None:
        return False
    parts = posixpath.normpath(canonical).strip("/").split("/")
    return not needed(auth.store.engine, "files", ["/".join(parts[:end]) for end in range(1, len(parts) + 1)])
