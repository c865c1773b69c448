"""Who asks: an account with a password, or whoever a token is issued for, by the header Authorization alone.

`door.py` asks once for each request; MLflow, which asks several times, is told what was found by `authenticate`. An
account that comes with a token is made when it is first seen. It has no password: nobody can sign in with one.
"""

import logging
import secrets
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

from flask import Response
from mlflow.exceptions import MlflowException
from mlflow.server import auth
from mlflow.server.auth.db.models import SqlUser
from sqlalchemy.exc import IntegrityError
from werkzeug.datastructures import Authorization
from werkzeug.security import check_password_hash, generate_password_hash

from understudy.errors import UnderstudyError
from understudy.registry.server_app import teams
from understudy.registry.server_app.audit import Where, write_sign_in
from understudy.registry.server_app.ownership import has_joined, join
from understudy.registry.server_app.teams import LONGEST, SETTING, Account, Accounts
from understudy.registry.server_app.token_review import TokenRefusedError
from understudy.registry.server_app.tokens import KNOWN, account_of

log = logging.getLogger(__name__)
FUNCTION = f"{__name__}:authenticate"
NO_PASSWORD = "!"  # no hash: no password has it


class Refusal(NamedTuple):
    """What is answered to whom nobody knows."""

    status: int
    code: str
    message: str


NOBODY = Refusal(401, "UNAUTHENTICATED", "this server asks for an account's name and password, or for a token")
SENDER: ContextVar[Account | None] = ContextVar("SENDER", default=None)
"""Who asks, in a request that came through the door."""

UNKNOWN = Where(None, None)
PLACE: ContextVar[Where] = ContextVar("PLACE", default=UNKNOWN)
"""From where, while it is found out who asks."""


@cache
def accounts() -> Accounts:
    """The setting, read once."""
    return teams.read()


def authenticate() -> Authorization | Response:
    """Who asks, for MLflow. What did not come through the door is nobody's."""
    account = SENDER.get()
    if account is None:
        refused: Response = auth.make_basic_auth_response()
        return refused
    return Authorization("bearer", {"username": account.name})


def sender() -> Account:
    """Who asks, in a request that MLflow has let through."""
    account = SENDER.get()
    if account is None:
        raise LookupError("this request did not come through the door")
    return account


def credentials(header: str | None) -> Authorization | None:
    """A token, or a name with a password; None for all else that the header Authorization may be."""
    shown = Authorization.from_header(header)
    if shown is None or (shown.type == "bearer" and not shown.token):
        return None
    return shown if shown.type in ("basic", "bearer") else None


def seen_lately(shown: Authorization) -> Account | None:
    """Whose credentials these are, if that was found in the last minute: nothing is hashed or asked for it."""
    account = KNOWN.get(shown.token) if shown.token else _password_lately(shown)
    return account if account and has_joined(accounts(), account) else None


def signed_in(shown: Authorization) -> Account | Refusal:
    """Whose credentials these are, or the answer to whom nobody knows. It takes a while: others may be asked."""
    try:
        if shown.token:
            account = _with_token(shown.token)
        else:
            account = _with_password(shown.username or "", shown.password or "")
        if isinstance(account, Account) and (roles := join(accounts(), account)):
            before, after = ({"roles": sorted(names)} for names in roles)
            write_sign_in(account.name, "roles", before, after, PLACE.get())
    except MlflowException:
        log.exception("the accounts cannot be read")
        return Refusal(503, "TEMPORARILY_UNAVAILABLE", "this server's accounts cannot be read; try again")
    return account


def _with_token(token: str) -> Account | Refusal:
    try:
        account = account_of(token, accounts().people)
    except TokenRefusedError as error:
        return Refusal(401, "UNAUTHENTICATED", str(error))
    except UnderstudyError as error:
        log.error("a token cannot be checked: %s", error)
        return Refusal(503, "TEMPORARILY_UNAVAILABLE", str(error))
    if not accounts().reads(account):
        wrong = f"{account.name}: no team has this account, nor a group of it ({SETTING} of the server)"
        return Refusal(403, "PERMISSION_DENIED", wrong)
    _make(account.name)
    return account


def _with_password(name: str, password: str) -> Account | Refusal:
    """An account whose password this is. Who has none is asked as long: else the time tells who has one."""
    if not name.isprintable() or not 0 < len(name) <= LONGEST:  # PostgreSQL takes no NUL in a text
        return NOBODY
    if auth._authenticate_cached(name, password):
        return Account(name)
    if not _has_password(name):
        check_password_hash(_decoy(), password)
    return NOBODY


def _password_lately(shown: Authorization) -> Account | None:
    """The account whose password MLflow found to be right in the last minute."""
    if auth._USER_AUTH_CACHE is None:
        return None
    key = auth._auth_cache_key(shown.username or "", shown.password or "")
    with auth._USER_AUTH_CACHE_LOCK:
        return Account(key[0]) if key in auth._USER_AUTH_CACHE else None


def _has_password(name: str) -> bool:
    with auth.store.ManagedSessionMaker() as session:
        found = session.query(SqlUser.password_hash).filter(SqlUser.username == name).first()
    return found is not None and found[0] != NO_PASSWORD


@cache
def _decoy() -> str:
    """The hash of a password that nobody has."""
    return generate_password_hash(secrets.token_hex())


def _make(name: str) -> None:
    """Make an account, or find it made."""
    if auth.store.has_user(name):
        return
    try:
        with auth.store.ManagedSessionMaker(read_only=False) as session:
            session.add(SqlUser(username=name, password_hash=NO_PASSWORD, is_admin=False))
    except (IntegrityError, MlflowException):
        if not auth.store.has_user(name, use_primary=True):  # else a server beside this one was as quick
            raise
    else:
        write_sign_in(name, "users", None, {"is_admin": False}, PLACE.get())
