"""Authentication by the Authorization header alone: an account with a password, or the subject of a token.

`authentication.py` calls it once per request; `authenticate` gives the result to MLflow, which needs it several times.
The account of a token is created at its first sign-in. It has no password, so no password signs it in.
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
from understudy_server import teams
from understudy_server.audit import Origin, record_sign_in
from understudy_server.ownership import has_current_roles, update_roles
from understudy_server.teams import MAX_NAME, SETTING, Account, Accounts
from understudy_server.token_review import TokenRefusedError
from understudy_server.tokens import CACHE, account_of

log = logging.getLogger(__name__)
FUNCTION = f"{__name__}:authenticate"
NO_PASSWORD = "!"  # not a hash: no password matches it


class Refusal(NamedTuple):
    """The answer to a request that could not be authenticated."""

    status: int
    code: str
    message: str


UNAUTHENTICATED = Refusal(401, "UNAUTHENTICATED", "this server requires an account's name and password, or a token")
SENDER: ContextVar[Account | None] = ContextVar("SENDER", default=None)
"""The sender of an authenticated request."""

UNKNOWN_ORIGIN = Origin(None, None)
ORIGIN: ContextVar[Origin] = ContextVar("ORIGIN", default=UNKNOWN_ORIGIN)
"""The origin of a request, for the audit during authentication."""


@cache
def accounts() -> Accounts:
    """The setting, read once."""
    return teams.read()


def authenticate() -> Authorization | Response:
    """The sender, for MLflow; the basic-auth refusal for a request without one."""
    account = SENDER.get()
    if account is None:
        response: Response = auth.make_basic_auth_response()
        return response
    return Authorization("bearer", {"username": account.name})


def sender() -> Account:
    """The sender of a request that MLflow has let through."""
    account = SENDER.get()
    if account is None:
        raise LookupError("this request was not authenticated")
    return account


def parsed_credentials(header: str | None) -> Authorization | None:
    """A token, or a name with a password; None for any other Authorization header."""
    credentials = Authorization.from_header(header)
    if credentials is None or (credentials.type == "bearer" and not credentials.token):
        return None
    return credentials if credentials.type in ("basic", "bearer") else None


def cached_account(credentials: Authorization) -> Account | None:
    """The account of credentials that were verified in the last minute, without a hash or a request."""
    account = CACHE.get(credentials.token) if credentials.token else _cached_password(credentials)
    return account if account and has_current_roles(accounts(), account) else None


def verified_account(credentials: Authorization) -> Account | Refusal:
    """The account of these credentials, or a refusal. Slow: it computes a hash, or calls the token's issuer."""
    try:
        if credentials.token:
            account = _with_token(credentials.token)
        else:
            account = _with_password(credentials.username or "", credentials.password or "")
        if isinstance(account, Account) and (roles := update_roles(accounts(), account)):
            before, after = ({"roles": sorted(names)} for names in roles)
            record_sign_in(account.name, "roles", before, after, ORIGIN.get())
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
        text = f"{account.name}: neither this account nor a group of it is in a team ({SETTING} of the server)"
        return Refusal(403, "PERMISSION_DENIED", text)
    _create_account(account.name)
    return account


def _with_password(name: str, password: str) -> Account | Refusal:
    """The account with this password. A name without one takes as long, or timing would reveal it."""
    if not name.isprintable() or not 0 < len(name) <= MAX_NAME:  # PostgreSQL takes no NUL in a text
        return UNAUTHENTICATED
    if auth._authenticate_cached(name, password):
        return Account(name)
    if not _has_password(name):
        check_password_hash(_decoy(), password)
    return UNAUTHENTICATED


def _cached_password(credentials: Authorization) -> Account | None:
    """The account whose password MLflow verified in the last minute."""
    if auth._USER_AUTH_CACHE is None:
        return None
    key = auth._auth_cache_key(credentials.username or "", credentials.password or "")
    with auth._USER_AUTH_CACHE_LOCK:
        return Account(key[0]) if key in auth._USER_AUTH_CACHE else None


def _has_password(name: str) -> bool:
    with auth.store.ManagedSessionMaker() as session:
        row = session.query(SqlUser.password_hash).filter(SqlUser.username == name).first()
    return row is not None and row[0] != NO_PASSWORD


@cache
def _decoy() -> str:
    """The hash of a random password."""
    return generate_password_hash(secrets.token_hex())


def _create_account(name: str) -> None:
    """Create an account if it does not exist."""
    if auth.store.has_user(name):
        return
    try:
        with auth.store.ManagedSessionMaker(read_only=False) as session:
            session.add(SqlUser(username=name, password_hash=NO_PASSWORD, is_admin=False))
    except (IntegrityError, MlflowException):
        if not auth.store.has_user(name, use_primary=True):  # otherwise another server created it first
            raise
    else:
        record_sign_in(name, "users", None, {"is_admin": False}, ORIGIN.get())
