"""What a team made is the team's. Two roles of MLflow's have the rights to it: one who reads, one who writes.

An account has the roles that the setting gives it, from one sign-in to the next; nothing is an account's own. MLflow
keeps rights when a model is deleted or renamed, so they are removed or moved here: a name can be another team's next.
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

from understudy.registry.server_app.teams import Account, Accounts

Kind = Literal["experiment", "registered_model"]
KINDS: tuple[Kind, ...] = ("experiment", "registered_model")
PREFIX = "team:"
READERS, WRITERS = "read", "write"
RIGHTS = {READERS: READ.name, WRITERS: MANAGE.name}
EVERYTHING = "*"
"""What MLflow reads as all things of a kind, not as the one that is called so."""
SECONDS = 60.0
"""For so long an account's roles are not compared with the setting again."""

_joined: dict[str, tuple[frozenset[str], float]] = {}
_lock = Lock()


def make_roles(accounts: Accounts) -> None:
    """Make the roles of all teams, or find them made, and give a team what its writers had made as their own.

    A right to everything is no team's: one may be left of a model that was called so.
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
    """What an account may manage by itself, from the time before there were teams."""
    for role in auth.store.list_user_roles(auth.store.get_user(name).id):
        for right in role.permissions if not role.name.startswith(PREFIX) else ():
            kind, thing = right.resource_type, right.resource_pattern
            if thing == EVERYTHING or kind not in KINDS:
                continue
            if right.permission == MANAGE.name and team_of(kind, thing) is None:
                own(team, kind, thing)


class Roles(NamedTuple):
    """The teams' roles that an account had, and those that it has."""

    before: frozenset[str]
    after: frozenset[str]


def has_joined(accounts: Accounts, account: Account) -> bool:
    """Whether an account was given its roles lately."""
    with _lock:
        had, until = _joined.get(account.name, (None, 0.0))
    return had == _roles(accounts, account) and time.time() < until


def join(accounts: Accounts, account: Account) -> Roles | None:
    """Give an account the roles that are its own by the setting, and take all other ones of teams away.

    Returns:
        What was changed; None when nothing was.
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
        ValueError: it is named as everything is.
    """
    _refuse_everything(name)
    for right, permission in RIGHTS.items():
        role = auth.store.get_role_by_name(DEFAULT_WORKSPACE_NAME, _role(team, right))
        _unless_there(partial(auth.store.add_role_permission, role.id, kind, name, permission))


def team_of(kind: Kind, name: str) -> str | None:
    """The team that a thing belongs to; None for what an admin made, or was there before the teams."""
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
    """Take every team's right to a thing away, since it is gone."""
    with auth.store.ManagedSessionMaker(read_only=False) as session:
        _rights(session, kind, name).delete(synchronize_session=False)


def rename(kind: Kind, name: str, new_name: str) -> None:
    """Let the teams' rights to a thing follow its name.

    Raises:
        ValueError: the new name is that of everything.
    """
    _refuse_everything(new_name)
    with auth.store.ManagedSessionMaker(read_only=False) as session:
        change = {SqlRolePermission.resource_pattern: new_name}
        _rights(session, kind, name).update(change, synchronize_session=False)


def _refuse_everything(name: str) -> None:
    """The last guard, whatever let such a name pass."""
    if name == EVERYTHING:
        raise ValueError(f"{name}: a right to it is one to everything")


def _rights(session: Any, kind: Kind, name: str) -> Any:
    """The rights of all teams to a thing."""
    roles = session.query(SqlRole.id).filter(SqlRole.name.startswith(PREFIX))
    return session.query(SqlRolePermission).filter(
        SqlRolePermission.role_id.in_(roles),
        SqlRolePermission.resource_type == kind,
        SqlRolePermission.resource_pattern == name,
    )


def _role(team: str, right: str) -> str:
    return f"{PREFIX}{team}:{right}"


def _unless_there(make: Callable[[], Any]) -> None:
    """Make something that a request, or a server, beside this one may make at the same time."""
    try:
        make()
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS) and not _is_taken(error.__cause__):
            raise


def _is_taken(cause: BaseException | None) -> bool:
    """Whether the database found it there. MLflow looks first, and both may have looked before either made it."""
    return isinstance(cause, IntegrityError) and "unique" in str(cause.orig).lower()
