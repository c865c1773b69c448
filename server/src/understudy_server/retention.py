"""Retention of a promoted version: its files, their logged model and run, and the evidence become read-only.

The alias points to a version, and the version to files that their creator could replace, or delete with their run or
experiment. All files go through this server, whose accounts have no access to the bucket. So no copy is needed: from
the promotion on, the server lets only admins write there.
"""

import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from flask import request
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
from mlflow.protos.service_pb2 import (
    CreateLoggedModel,
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

from understudy_server.retention_table import Kind, needed
from understudy_server.retention_table import keep as keep_rows
from understudy_server.uploads import folders, under_way, upload

ROOT = "mlflow-artifacts:/"
Thing = tuple[Kind, str]


def _run(message: Any) -> list[Thing]:
    return [("run", str(message.run_id or getattr(message, "run_uuid", "")))]


def _metric(message: Any) -> list[Thing]:
    """A metric may also belong to a logged model, even one of another run."""
    return [*_run(message), ("logged-model", message.model_id)]


def _batch(message: Any) -> list[Thing]:
    models: set[Thing] = {("logged-model", metric.model_id) for metric in message.metrics}
    return [*_run(message), *models]


def _logged_model(_: Any) -> list[Thing]:
    return [("logged-model", str((request.view_args or {})["model_id"]))]


def _experiment(message: Any) -> list[Thing]:
    """The experiment by its canonical number: the database also matches 007 with experiment 7."""
    name = str(message.experiment_id)
    return [("experiment", str(int(name)) if name.isdecimal() else name)]


CHANGES: dict[type[object], Callable[[Any], list[Thing]]] = {
    **dict.fromkeys((DeleteRun, UpdateRun, SetTag, DeleteTag, LogParam, LogModel, LogInputs, LogOutputs), _run),
    LogMetric: _metric,
    LogBatch: _batch,
    **dict.fromkeys(
        (DeleteLoggedModel, FinalizeLoggedModel, SetLoggedModelTags, DeleteLoggedModelTag, LogLoggedModelParamsRequest),
        _logged_model,
    ),
    CreateLoggedModel: lambda message: [("run", str(message.source_run_id))],
    DeleteExperiment: _experiment,
}
"""Requests that change a run, logged model or experiment, and the things that each of them changes."""


def keep(version: Any) -> None:
    """Retain a model version's requirements from now on."""
    words = f"version {version.version} of {version.name}, which was promoted"
    keep_rows(auth.store.engine, dict.fromkeys(needs(version), words))


def needs(version: Any) -> set[Thing]:
    """A model version's requirements: its files, their logged model and run, and the experiments of these."""
    files = handlers._get_model_registry_store().get_model_version_download_uri(version.name, version.version)
    return lineage(files, version.run_id)


def lineage(files: str, run_id: str | None) -> set[Thing]:
    """The files at an address, their logged model and run, the given run, and the experiments of these."""
    things = _at(files)
    runs = {run_id or "", *(name for kind, name in things if kind == "run")}
    runs |= {_run_of(name) or "" for kind, name in things if kind == "logged-model"}
    for run in runs - {""}:
        things |= {("run", run), *_of_run(run)}
    return things


def _run_of(logged_model: str) -> str | None:
    """The source run of a logged model, deleted or not; None if there is no such model."""
    try:
        found = handlers._get_tracking_store().get_logged_model(logged_model, allow_deleted=True)
        return str(found.source_run_id or "")
    except MlflowException:
        return None


def _of_run(run: str) -> set[Thing]:
    """A run's files, including the evidence, and its experiment; empty for a run that does not exist."""
    try:
        info = handlers._get_tracking_store().get_run(run).info
    except MlflowException:
        return set()
    return {("experiment", str(info.experiment_id)), *_at(str(info.artifact_uri))}


def _at(uri: str) -> set[Thing]:
    """The files at EXPERIMENT/RUN/... or EXPERIMENT/models/MODEL/..., and the things that they belong to."""
    if not uri.startswith(ROOT):
        return set()
    place = posixpath.normpath(uri.removeprefix(ROOT)).strip("/")
    experiment, *rest = place.split("/")
    things: set[Thing] = {("files", place), ("experiment", experiment)}
    if len(rest) > 1 and rest[0] == "models":
        things |= {("logged-model", rest[1]), ("files", f"{experiment}/models/{rest[1]}")}
    elif rest:
        things |= {("run", rest[0])}
    return things


def guard_kept() -> None:
    """Check every request that writes to a run, logged model, experiment or file, before MLflow's check of it."""
    guarded = set()
    for path, kind, methods in handlers.get_service_endpoints(MlflowService, lambda kind: kind):
        if kind not in CHANGES:
            continue
        guarded.add(kind)
        for method in methods:
            table, key = _validators(path, method)
            table[key] = partial(_allowed, kind, table[key])
    assert guarded == CHANGES.keys(), "this MLflow has other requests; some would be unguarded"
    handlers._get_artifact_repo_mlflow_artifacts = partial(_guarded, handlers._get_artifact_repo_mlflow_artifacts)
    flask, native = auth._authorize_flask_artifact_proxy, auth._authorize_fastapi_artifact_proxy
    auth._authorize_flask_artifact_proxy = partial(_flask_files_allowed, flask)
    auth._authorize_fastapi_artifact_proxy = partial(_native_files_allowed, native)


def _validators(path: str, method: str) -> tuple[dict[Any, Any], Any]:
    """MLflow's table with the check of a request, and the key by which MLflow looks it up."""
    if "/mlflow/logged-models" in path:
        return auth.LOGGED_MODEL_BEFORE_REQUEST_VALIDATORS, (auth._re_compile_path(path), method)
    return auth.BEFORE_REQUEST_VALIDATORS, (path, method)


def _allowed(kind: Any, checked: Callable[[], bool]) -> bool:
    for sort, name in CHANGES[kind](handlers._get_request_message(kind())):  # parsed as the handler parses it
        needed_by = needed(auth.store.engine, sort, [name]) if name else ""
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
    canonical = _canonical(path)
    return canonical is not None and not needed(auth.store.engine, "files", folders(canonical))


def _canonical(path: str) -> str | None:
    """The canonical form of a path of the server's files; None if it is not below their root."""
    canonical = auth._canonical_artifact_proxy_path(path)
    return None if canonical is None else posixpath.normpath(canonical).strip("/")


def _guarded(repository_of: Callable[[], Any]) -> Any:
    """The server's files, with a second check when a file is published: its upload may have begun before a promotion.

    Publishing is recorded meanwhile, so a promotion detects it.
    """
    repository = repository_of()
    if not getattr(repository, "guards_kept", False):
        repository.guards_kept = True
        repository.log_artifact = partial(_log_artifact, repository.log_artifact)
        if hasattr(repository, "complete_multipart_upload"):
            repository.complete_multipart_upload = partial(_complete, repository.complete_multipart_upload)
        if hasattr(repository, "_publish_staged_artifact"):
            publish = partial(_publish, repository._publish_staged_artifact, repository.artifact_dir)
            repository._publish_staged_artifact = publish
    return repository


def _log_artifact(log_artifact: Callable[..., None], local_file: str, artifact_path: str | None = None) -> None:
    with _put(posixpath.join(artifact_path or "", posixpath.basename(local_file))):
        log_artifact(local_file, artifact_path)


def _complete(
    complete: Callable[..., None], local_file: str, upload_id: str, parts: Any = None, artifact_path: str | None = None
) -> None:
    with _put(posixpath.join(artifact_path or "", posixpath.basename(local_file))):
        complete(local_file, upload_id, parts, artifact_path)


def _publish(publish: Callable[..., None], root: str, staged: str, place: str, *rest: Any) -> None:
    with _put(posixpath.relpath(place, root)):
        publish(staged, place, *rest)


@contextmanager
def _put(path: str) -> Iterator[None]:
    """Context for publishing a file, which is refused if a promoted version needs the path.

    The upload is recorded first, then checked. A promotion forbids first, then looks for uploads, so one of the two
    sees the other. A path that is already forbidden is not recorded: repeated attempts would block a roll-back.
    """
    _refuse_kept(path)
    with upload(auth.store.engine, _canonical(path) or path):
        _refuse_kept(path)
        yield


def _refuse_kept(path: str) -> None:
    if not _may_write(path, "update"):
        raise MlflowException(f"{path} stays as it is: a promoted version needs it", PERMISSION_DENIED)


def uploads_below(version: Any) -> list[str]:
    """The files of a version, or of its run, that any server is publishing now."""
    return under_way(auth.store.engine, [place for kind, place in needs(version) if kind == "files"])
