"""Tenant isolation: other teams' things are answered as missing, and each new thing belongs to one team.

MLflow's permissions decide who reads and changes a thing. But MLflow answers 403 for another team's model or
experiment and 404 for a missing one, which reveals names; and it gives a new thing to the account.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from flask import Response, request
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED, RESOURCE_DOES_NOT_EXIST, ErrorCode
from mlflow.protos.model_registry_pb2 import CreateRegisteredModel, ModelRegistryService
from mlflow.protos.service_pb2 import CreateExperiment, GetExperimentByName, MlflowService
from mlflow.server import auth, handlers
from mlflow.server.auth import routes

from understudy_server import ownership
from understudy_server.promotion import found_in_registry
from understudy_server.sign_in import accounts, sender
from understudy_server.teams import SETTING

ROSTERS = (
    *(routes.LIST_USERS, routes.AJAX_LIST_USERS),
    *(routes.LIST_ROLES, routes.AJAX_LIST_ROLES),
    *(routes.GET_ROLE, routes.AJAX_GET_ROLE),
    *(routes.LIST_ROLE_PERMISSIONS, routes.AJAX_LIST_ROLE_PERMISSIONS),
)
"""Lists of accounts, of teams, and of the teams' permissions."""
RAISING = (auth.validate_can_read_metric_history_bulk, auth.validate_can_read_metric_history_bulk_interval)
"""MLflow's checks that report a missing run as missing; all others refuse it like another team's."""


def guard_teams() -> None:
    """Run these rules before MLflow's checks, and before all rules added earlier."""
    for path in ROSTERS:
        auth.BEFORE_REQUEST_VALIDATORS[path, "GET"] = auth.sender_is_admin
    for service in (ModelRegistryService, MlflowService):
        for path, kind, methods in handlers.get_service_endpoints(service, lambda kind: kind):
            rule = _rule(service, kind)
            for method in methods if rule else ():
                auth.BEFORE_REQUEST_VALIDATORS[path, method] = partial(
                    rule, kind, auth.BEFORE_REQUEST_VALIDATORS[path, method]
                )
    for key, checked in auth.BEFORE_REQUEST_VALIDATORS.items():
        if checked in RAISING:
            auth.BEFORE_REQUEST_VALIDATORS[key] = partial(_denied_if_missing, checked)
    for key, handler in auth.AFTER_REQUEST_HANDLERS.items():
        if instead := AFTERWARDS.get(handler.__name__):
            auth.AFTER_REQUEST_HANDLERS[key] = instead(handler)


def _rule(service: Any, kind: Any) -> Any:
    """The rule for a kind of request, or None."""
    if kind in (CreateExperiment, CreateRegisteredModel):
        return _making
    if kind is GetExperimentByName:
        return _experiment_named
    if service is ModelRegistryService and "name" in kind.DESCRIPTOR.fields_by_name:
        return _model_named
    return None


def _model_named(kind: Any, checked: Callable[[], bool]) -> bool:
    name = handlers._get_request_message(kind()).name
    if not _reads_model(name):
        raise MlflowException(f"Registered Model with name={name} not found", RESOURCE_DOES_NOT_EXIST)
    return checked()


def _experiment_named(kind: Any, checked: Callable[[], bool]) -> bool:
    name = handlers._get_request_message(kind()).experiment_name
    found = handlers._get_tracking_store().get_experiment_by_name(name)
    if found is None or not _reads_experiment(found.experiment_id):
        raise MlflowException(f"Could not find experiment with name {name}", RESOURCE_DOES_NOT_EXIST)
    return checked()


def _denied_if_missing(checked: Callable[[], bool]) -> bool:
    try:
        return checked()
    except MlflowException as error:
        if error.error_code == ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            return False
        raise


def _reads_model(name: str) -> bool:
    return bool(auth._get_registered_model_permission(name).can_read)


def _reads_experiment(number: str) -> bool:
    return bool(auth._get_experiment_permission(number, sender().name).can_read)


# Creation


def _making(kind: Any, checked: Callable[[], bool]) -> bool:
    """Only a writer of one team creates things. A name taken by another team cannot be hidden: names are shared."""
    teams, name = accounts().writes(sender()), handlers._get_request_message(kind()).name
    if not teams:
        raise MlflowException(
            f"{sender().name} makes no experiments and models: it is a writer of no team ({SETTING} of the server)",
            PERMISSION_DENIED,
        )
    if len(teams) > 1:
        raise MlflowException(
            f"{sender().name} writes for the teams {', '.join(sorted(teams))}; what it makes would be nobody's",
            PERMISSION_DENIED,
        )
    if _is_taken(kind, name):
        raise MlflowException(f"the name {name} is taken on this server; choose another", PERMISSION_DENIED)
    return checked()


def _is_taken(kind: Any, name: str) -> bool:
    """Whether something that the account cannot see has this name."""
    if kind is CreateRegisteredModel:
        return found_in_registry("get_registered_model", name) is not None and not _reads_model(name)
    found = handlers._get_tracking_store().get_experiment_by_name(name)
    return found is not None and not _reads_experiment(found.experiment_id)


def _give(kind: ownership.Kind, name: str) -> None:
    """Give a new thing to its account's team; one of an admin who writes for no team has no team.

    SQLite reuses the number of an experiment that was removed for good, and its permissions may be left.
    """
    ownership.disown(kind, name)
    teams = accounts().writes(sender())
    if len(teams) == 1:
        (team,) = teams
        ownership.own(team, kind, name)


def _experiment_made(response: Response) -> None:
    _give("experiment", str((response.get_json() or {})["experiment_id"]))


def _model_made(response: Response) -> None:
    _give("registered_model", str((response.get_json() or {})["registered_model"]["name"]))


def _model_gone(handler: Callable[[Response], None], response: Response) -> None:
    handler(response)
    ownership.disown("registered_model", str(_asked()["name"]))


def _model_renamed(handler: Callable[[Response], None], response: Response) -> None:
    ownership.rename("registered_model", str(_asked()["name"]), str(_asked()["new_name"]))
    handler(response)


def _asked() -> Any:
    return request.get_json(force=True, silent=True) or {}


AFTERWARDS: dict[str, Callable[[Any], Callable[[Response], None]]] = {
    "set_can_manage_experiment_permission": lambda _: _experiment_made,
    "set_can_manage_registered_model_permission": lambda _: _model_made,
    "delete_can_manage_registered_model_permission": lambda handler: partial(_model_gone, handler),
    "rename_registered_model_permission": lambda handler: partial(_model_renamed, handler),
}
"""MLflow's after-request handlers, by name, and their replacements or wrappers."""
