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
RIGHTS = {READERS: READ.name, WRITERS: MANAGE.name}
EVERYTHING = "*"
"""The wildcard: MLflow reads it as all things of a kind, not as a name."""
SECONDS = 60.0
"""How long an account's roles are not compared with the setting again."""

_joined: dict[str, tuple[frozenset[str], float]] = {}
_lock = Lock()


def make_roles(accounts: Accounts) -> None:
    """Create the roles of all teams if they do not exist, and give each team the things that its writers manage.

    A permission for everything is removed: one may be left of a model with that name.
    """
    for kind in KINDS:
        disown(kind, EVERYTHING)
    for team in accounts.teams:
        for right in RIGHTS:
            _unless_there(partial(auth.store.create_role, _role(team, right), DEFAULT_WORKSPACE_NAME))
    for team, members in accounts.teams.items():
        for name in sorted(members.writers):
            if auth.store.has_user(name):
                _hand_over(name, team)


def _hand_over(name: str, team: str) -> None:
    """Give a team the things that an account manages itself, from the time before teams."""
    for role in auth.store.list_user_roles(auth.store.get_user(name).id):
        for right in role.permissions if not role.name.startswith(PREFIX) else ():
            kind, thing = right.resource_type, right.resource_pattern
            if thing == EVERYTHING or kind not in KINDS:
                continue
            if right.permission == MANAGE.name and team_of(kind, thing) is None:
                own(team, kind, thing)


class Roles(NamedTuple):
    """The team roles of an account before and after a change."""

    before: frozenset[str]
    after: frozenset[str]


def has_joined(accounts: Accounts, account: Account) -> bool:
    """Whether an account got its current roles recently."""
    with _lock:
        had, until = _joined.get(account.name, (None, 0.0))
    return had == _roles(accounts, account) and time.time() < until


def join(accounts: Accounts, account: Account) -> Roles | None:
    """Give an account its team roles by the setting, and remove all its other team roles.

    Returns:
        The change; None if there was none.
    """
    if has_joined(accounts, account):
        return None
    wanted = _roles(accounts, account)
    user = auth.store.get_user(account.name)
    had = {role.name: role.id for role in auth.store.list_user_roles(user.id) if role.name.startswith(PREFIX)}
    for name in had.keys() - wanted:
        auth.store.unassign_role_from_user(user.id, had[name])
    for name in wanted - had.keys():
        role = auth.store.get_role_by_name(DEFAULT_WORKSPACE_NAME, name)
        _unless_there(partial(auth.store.assign_role_to_user, user.id, role.id))
    with _lock:
        _joined[account.name] = (wanted, time.time() + SECONDS)
    return Roles(frozenset(had), wanted) if had.keys() != wanted else None


def _roles(accounts: Accounts, account: Account) -> frozenset[str]:
    return frozenset(
        [_role(team, READERS) for team in accounts.reads(account)]
        + [_role(team, WRITERS) for team in accounts.writes(account)]
    )


def own(team: str, kind: Kind, name: str) -> None:
    """Give a thing to a team.

    Raises:
        ValueError: its name is the wildcard.
    """
    _refuse_everything(name)
    for right, permission in RIGHTS.items():
        role = auth.store.get_role_by_name(DEFAULT_WORKSPACE_NAME, _role(team, right))
        _unless_there(partial(auth.store.add_role_permission, role.id, kind, name, permission))


def team_of(kind: Kind, name: str) -> str | None:
    """The team that owns a thing; None if an admin created it, or it is older than the teams."""
    with auth.store.ManagedSessionMaker() as session:
        rights = session.query(SqlRole.name).join(SqlRolePermission, SqlRolePermission.role_id == SqlRole.id)
        found = rights.filter(
            SqlRole.name.startswith(PREFIX),
            SqlRolePermission.resource_type == kind,
            SqlRolePermission.resource_pattern == name,
            SqlRolePermission.permission == MANAGE.name,
        ).first()
    return str(found[0]).split(":")[1] if found else None


def disown(kind: Kind, name: str) -> None:
    """Remove every team's permissions for a thing that is gone."""
    with auth.store.ManagedSessionMaker(read_only=False) as session:
        _rights(session, kind, name).delete(synchronize_session=False)


def rename(kind: Kind, name: str, new_name: str) -> None:
    """Move the teams' permissions for a thing to its new name.

    Raises:
        ValueError: the new name is the wildcard.
    """
    _refuse_everything(new_name)
    with auth.store.ManagedSessionMaker(read_only=False) as session:
        change = {SqlRolePermission.resource_pattern: new_name}
        _rights(session, kind, name).update(change, synchronize_session=False)


def _refuse_everything(name: str) -> None:
    """Refuse the wildcard as a name, in case no earlier check did."""
    if name == EVERYTHING:
        raise ValueError(f"{name}: a right to it is one to everything")


def _rights(session: Any, kind: Kind, name: str) -> Any:
    """The permissions of all teams for a thing."""
    roles = session.query(SqlRole.id).filter(SqlRole.name.startswith(PREFIX))
    return session.query(SqlRolePermission).filter(
        SqlRolePermission.role_id.in_(roles),
        SqlRolePermission.resource_type == kind,
        SqlRolePermission.resource_pattern == name,
    )


def _role(team: str, right: str) -> str:
    return f"{PREFIX}{team}:{right}"


def _unless_there(make: Callable[[], Any]) -> None:
    """Create something that a concurrent request or another server may create too."""
    try:
        make()
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS) and not _is_taken(error.__cause__):
            raise


def _is_taken(cause: BaseException | None) -> bool:
    """Whether the database reports a duplicate. MLflow checks first, but both may check before either inserts."""
    return isinstance(cause, IntegrityError) and "unique" in str(cause.orig).lower()
