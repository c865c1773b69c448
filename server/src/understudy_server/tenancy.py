"""Tenant isolation: other teams' resources are answered as missing, and each new resource belongs to one team.

MLflow's permissions decide who reads and changes a resource. But MLflow answers 403 for another team's model or
experiment and 404 for a missing one, which reveals names; and it gives a new resource to the account.
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
from understudy_server.promotion import registry_entity
from understudy_server.sign_in import accounts, sender
from understudy_server.teams import SETTING

LISTINGS = (
    *(routes.LIST_USERS, routes.AJAX_LIST_USERS),
    *(routes.LIST_ROLES, routes.AJAX_LIST_ROLES),
    *(routes.GET_ROLE, routes.AJAX_GET_ROLE),
    *(routes.LIST_ROLE_PERMISSIONS, routes.AJAX_LIST_ROLE_PERMISSIONS),
)
"""Lists of accounts, of teams, and of the teams' permissions."""
RAISING_CHECKS = (auth.validate_can_read_metric_history_bulk, auth.validate_can_read_metric_history_bulk_interval)
"""MLflow's checks that report a missing run as missing; all others refuse it like another team's."""


def add_tenant_rules() -> None:
    """Run these rules before MLflow's checks, and before all rules added earlier."""
    for path in LISTINGS:
        auth.BEFORE_REQUEST_VALIDATORS[path, "GET"] = auth.sender_is_admin
    for service in (ModelRegistryService, MlflowService):
        for path, message_type, methods in handlers.get_service_endpoints(service, lambda message_type: message_type):
            rule = _rule(service, message_type)
            for method in methods if rule else ():
                auth.BEFORE_REQUEST_VALIDATORS[path, method] = partial(
                    rule, message_type, auth.BEFORE_REQUEST_VALIDATORS[path, method]
                )
    for key, check in auth.BEFORE_REQUEST_VALIDATORS.items():
        if check in RAISING_CHECKS:
            auth.BEFORE_REQUEST_VALIDATORS[key] = partial(_denied_if_missing, check)
    for key, handler in auth.AFTER_REQUEST_HANDLERS.items():
        if replacement := AFTER_REQUEST.get(handler.__name__):
            auth.AFTER_REQUEST_HANDLERS[key] = replacement(handler)


def _rule(service: Any, message_type: Any) -> Any:
    """The rule for a kind of request, or None."""
    if message_type in (CreateExperiment, CreateRegisteredModel):
        return _check_creation
    if message_type is GetExperimentByName:
        return _experiment_by_name
    if service is ModelRegistryService and "name" in message_type.DESCRIPTOR.fields_by_name:
        return _model_by_name
    return None


def _model_by_name(message_type: Any, check: Callable[[], bool]) -> bool:
    name = handlers._get_request_message(message_type()).name
    if not _reads_model(name):
        raise MlflowException(f"Registered Model with name={name} not found", RESOURCE_DOES_NOT_EXIST)
    return check()


def _experiment_by_name(message_type: Any, check: Callable[[], bool]) -> bool:
    name = handlers._get_request_message(message_type()).experiment_name
    experiment = handlers._get_tracking_store().get_experiment_by_name(name)
    if experiment is None or not _reads_experiment(experiment.experiment_id):
        raise MlflowException(f"Could not find experiment with name {name}", RESOURCE_DOES_NOT_EXIST)
    return check()


def _denied_if_missing(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except MlflowException as error:
        if error.error_code == ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            return False
        raise


def _reads_model(name: str) -> bool:
    return bool(auth._get_registered_model_permission(name).can_read)


def _reads_experiment(number: str) -> bool:
    return bool(auth._get_experiment_permission(number, sender().name).can_read)


# Creation


def _check_creation(message_type: Any, check: Callable[[], bool]) -> bool:
    """Only a writer of one team creates resources. A name taken by another team cannot be hidden: names are shared."""
    teams, name = accounts().writes(sender()), handlers._get_request_message(message_type()).name
    if not teams:
        raise MlflowException(
            f"{sender().name} may not create experiments or models: it writes for no team ({SETTING} of the server)",
            PERMISSION_DENIED,
        )
    if len(teams) > 1:
        raise MlflowException(
            f"{sender().name} writes for the teams {', '.join(sorted(teams))}; an experiment or model belongs to one",
            PERMISSION_DENIED,
        )
    if _is_taken(message_type, name):
        raise MlflowException(f"the name {name} is taken on this server; choose another", PERMISSION_DENIED)
    return check()


def _is_taken(message_type: Any, name: str) -> bool:
    """Whether something that the account cannot see has this name."""
    if message_type is CreateRegisteredModel:
        return registry_entity("get_registered_model", name) is not None and not _reads_model(name)
    experiment = handlers._get_tracking_store().get_experiment_by_name(name)
    return experiment is not None and not _reads_experiment(experiment.experiment_id)


def _assign(message_type: ownership.Kind, name: str) -> None:
    """Give a new resource to its account's team; one of an admin who writes for no team has no team.

    SQLite reuses the number of an experiment that was removed for good, and its permissions may be left.
    """
    ownership.remove_permissions(message_type, name)
    teams = accounts().writes(sender())
    if len(teams) == 1:
        (team,) = teams
        ownership.assign(team, message_type, name)


def _experiment_created(response: Response) -> None:
    _assign("experiment", str((response.get_json() or {})["experiment_id"]))


def _model_created(response: Response) -> None:
    _assign("registered_model", str((response.get_json() or {})["registered_model"]["name"]))


def _model_deleted(handler: Callable[[Response], None], response: Response) -> None:
    handler(response)
    ownership.remove_permissions("registered_model", str(_body()["name"]))


def _model_renamed(handler: Callable[[Response], None], response: Response) -> None:
    ownership.move_permissions("registered_model", str(_body()["name"]), str(_body()["new_name"]))
    handler(response)


def _body() -> Any:
    return request.get_json(force=True, silent=True) or {}


AFTER_REQUEST: dict[str, Callable[[Any], Callable[[Response], None]]] = {
    "set_can_manage_experiment_permission": lambda _: _experiment_created,
    "set_can_manage_registered_model_permission": lambda _: _model_created,
    "delete_can_manage_registered_model_permission": lambda handler: partial(_model_deleted, handler),
    "rename_registered_model_permission": lambda handler: partial(_model_renamed, handler),
}
"""MLflow's after-request handlers, by name, and their replacements or wrappers."""
