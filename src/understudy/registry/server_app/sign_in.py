"""Who asks: an account with a password, or whoever a token is issued for. MLflow calls `authenticate` for it.

An account that comes with a token is made when it is first seen. It has no password: nobody can sign in with one.
"""

import json
import logging
from functools import cache
from typing import NamedTuple

from flask import Response, g, request
from mlflow.exceptions import MlflowException
from mlflow.server import auth
from mlflow.server.auth.db.models import SqlUser
from sqlalchemy.exc import IntegrityError
from werkzeug.datastructures import Authorization

from understudy.errors import UnderstudyError
from understudy.registry.server_app import teams
from understudy.registry.server_app.audit import write_sign_in
from understudy.registry.server_app.ownership import join
from understudy.registry.server_app.teams import SETTING, Account, Accounts
from understudy.registry.server_app.token_review import TokenRefusedError
from understudy.registry.server_app.tokens import account_of

log = logging.getLogger(__name__)
FUNCTION = f"{__name__}:authenticate"
NO_PASSWORD = "!"  # no hash: no password has it


class SignedIn(NamedTuple):
    """An account, and what MLflow is told of it."""

    account: Account
    authorization: Authorization


@cache
def accounts() -> Accounts:
    """The setting, read once."""
    return teams.read()


def authenticate() -> Authorization | Response:
    """Who asks, or the answer to whom nobody knows. Found once for a request, in which MLflow asks several times."""
    found: SignedIn | Response | None = g.get("understudy_signed_in")
    if found is None:
        found = g.understudy_signed_in = _signed_in()
    return found if isinstance(found, Response) else found.authorization


def sender() -> Account:
    """Who asks, in a request that MLflow has let through."""
    found: SignedIn = g.understudy_signed_in
    return found.account


def _signed_in() -> SignedIn | Response:
    said = request.authorization
    if said is None or said.type != "bearer" or not said.token:
        known = auth.authenticate_request_basic_auth()
        if isinstance(known, Response):
            return known
        account = Account(str(known.username))
    else:
        try:
            account = account_of(said.token, accounts().people)
        except TokenRefusedError as error:
            return _refusal(401, "UNAUTHENTICATED", str(error))
        except UnderstudyError as error:
            log.error("a token cannot be checked: %s", error)
            return _refusal(503, "TEMPORARILY_UNAVAILABLE", str(error))
        if not accounts().reads(account):
            wrong = f"{account.name}: no team has this account, nor a group of it ({SETTING} of the server)"
            return _refusal(403, "PERMISSION_DENIED", wrong)
        _make(account.name)
    if roles := join(accounts(), account):
        write_sign_in(account.name, "roles", *({"roles": sorted(names)} for names in roles))
    return SignedIn(account, Authorization("bearer", {"username": account.name}))


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
        write_sign_in(name, "users", None, {"is_admin": False})


def _refusal(status: int, code: str, message: str) -> Response:
    body = json.dumps({"error_code": code, "message": message})
    response = Response(body, status, mimetype="application/json")
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer error="invalid_token"'
    return response
