"""Team ownership of experiments and models, as permissions of two MLflow roles: a reading and a writing one.

An account gets its roles from the setting, at each sign-in; it owns nothing itself. MLflow keeps permissions when a
model is deleted or renamed, so they are removed or moved here: another team can use the name next.
"""

import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, Literal, NamedTuple

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode
from mlflow.server import auth
from mlflow.server.auth.db.models import SqlRole, SqlRolePermission
from mlflow.server.auth.permissions import MANAGE, READ
from mlflow.utils.workspace_utils import DEFAULT_WORKSPACE_NAME
from sqlalchemy.exc import IntegrityError

from understudy_server.teams import Account, Accounts

Kind = Literal["experiment", "registered_model"]
KINDS: tuple[Kind, ...] = ("experiment", "registered_model")
PREFIX = "team:"
READERS, WRITERS = "read", "write"
PERMISSIONS = {READERS: READ.name, WRITERS: MANAGE.name}
WILDCARD = "*"
"""The wildcard: MLflow reads it as all resources of a kind, not as a name."""
LIFETIME = 60.0
"""How long an account's roles are not compared with the setting again."""

_current: dict[str, tuple[frozenset[str], float]] = {}
_lock = Lock()


def create_roles(accounts: Accounts) -> None:
    """Create the roles of all teams if they do not exist, and give each team the resources that its writers manage.

    A permission for everything is removed: one may be left of a model with that name.
    """
    for kind in KINDS:
        remove_permissions(kind, WILDCARD)
    for team in accounts.teams:
        for access in PERMISSIONS:
            _unless_existing(partial(auth.store.create_role, _role(team, access), DEFAULT_WORKSPACE_NAME))
    for team, members in accounts.teams.items():
        for name in sorted(members.writers):
            if auth.store.has_user(name):
                _hand_over(name, team)


def _hand_over(name: str, team: str) -> None:
    """Give a team the resources that an account manages itself, from the time before teams."""
    for role in auth.store.list_user_roles(auth.store.get_user(name).id):
        for permission in role.permissions if not role.name.startswith(PREFIX) else ():
            kind, resource = permission.resource_type, permission.resource_pattern
            if resource == WILDCARD or kind not in KINDS:
                continue
            if permission.permission == MANAGE.name and team_of(kind, resource) is None:
                assign(team, kind, resource)


class Roles(NamedTuple):
    """The team roles of an account before and after a change."""

    before: frozenset[str]
    after: frozenset[str]


def has_current_roles(accounts: Accounts, account: Account) -> bool:
    """Whether an account got its current roles recently."""
    with _lock:
        previous, until = _current.get(account.name, (None, 0.0))
    return previous == _roles(accounts, account) and time.time() < until


def update_roles(accounts: Accounts, account: Account) -> Roles | None:
    """Give an account its team roles by the setting, and remove all its other team roles.

    Returns:
        The change; None if there was none.
    """
    if has_current_roles(accounts, account):
        return None
    expected = _roles(accounts, account)
    user = auth.store.get_user(account.name)
    previous = {role.name: role.id for role in auth.store.list_user_roles(user.id) if role.name.startswith(PREFIX)}
    for name in previous.keys() - expected:
        auth.store.unassign_role_from_user(user.id, previous[name])
    for name in expected - previous.keys():
        role = auth.store.get_role_by_name(DEFAULT_WORKSPACE_NAME, name)
        _unless_existing(partial(auth.store.assign_role_to_user, user.id, role.id))
    with _lock:
        _current[account.name] = (expected, time.time() + LIFETIME)
    return Roles(frozenset(previous), expected) if previous.keys() != expected else None


def _roles(accounts: Accounts, account: Account) -> frozenset[str]:
    return frozenset(
        [_role(team, READERS) for team in accounts.reads(account)]
        + [_role(team, WRITERS) for team in accounts.writes(account)]
    )


def assign(team: str, kind: Kind, name: str) -> None:
    """Give a resource to a team.

    Raises:
        ValueError: its name is the wildcard.
    """
    _refuse_wildcard(name)
    for access, permission in PERMISSIONS.items():
        role = auth.store.get_role_by_name(DEFAULT_WORKSPACE_NAME, _role(team, access))
        _unless_existing(partial(auth.store.add_role_permission, role.id, kind, name, permission))


def team_of(kind: Kind, name: str) -> str | None:
    """The team that owns a resource; None if an admin created it, or it is older than the teams."""
    with auth.store.ManagedSessionMaker() as session:
        query = session.query(SqlRole.name).join(SqlRolePermission, SqlRolePermission.role_id == SqlRole.id)
        row = query.filter(
            SqlRole.name.startswith(PREFIX),
            SqlRolePermission.resource_type == kind,
            SqlRolePermission.resource_pattern == name,
            SqlRolePermission.permission == MANAGE.name,
        ).first()
    return str(row[0]).split(":")[1] if row else None


def remove_permissions(kind: Kind, name: str) -> None:
    """Remove every team's permissions for a resource that is gone."""
    with auth.store.ManagedSessionMaker(read_only=False) as session:
        _permissions(session, kind, name).delete(synchronize_session=False)


def move_permissions(kind: Kind, name: str, new_name: str) -> None:
    """Move the teams' permissions for a resource to its new name.

    Raises:
        ValueError: the new name is the wildcard.
    """
    _refuse_wildcard(new_name)
    with auth.store.ManagedSessionMaker(read_only=False) as session:
        change = {SqlRolePermission.resource_pattern: new_name}
        _permissions(session, kind, name).update(change, synchronize_session=False)


def _refuse_wildcard(name: str) -> None:
    """Refuse the wildcard as a name, in case no earlier check did."""
    if name == WILDCARD:
        raise ValueError(f"{name}: a permission for it is one for everything")


def _permissions(session: Any, kind: Kind, name: str) -> Any:
    """The permissions of all teams for a resource."""
    roles = session.query(SqlRole.id).filter(SqlRole.name.startswith(PREFIX))
    return session.query(SqlRolePermission).filter(
        SqlRolePermission.role_id.in_(roles),
        SqlRolePermission.resource_type == kind,
        SqlRolePermission.resource_pattern == name,
    )


def _role(team: str, access: str) -> str:
    return f"{PREFIX}{team}:{access}"


def _unless_existing(create: Callable[[], Any]) -> None:
    """Create something that a concurrent request or another server may create too."""
    try:
        create()
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS) and not _is_duplicate(error.__cause__):
            raise


def _is_duplicate(cause: BaseException | None) -> bool:
    """Whether the database reports a duplicate. MLflow checks first, but both may check before either inserts."""
    return isinstance(cause, IntegrityError) and "unique" in str(cause.orig).lower()
