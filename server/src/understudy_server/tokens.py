"""The account of a token, as verified by its issuer, cached for at most a minute."""

import hashlib
import time
from threading import Lock
from typing import Any

import jwt

from understudy_server.id_token import person
from understudy_server.teams import Account, People
from understudy_server.token_review import TokenRefusedError, service_account

LIFETIME = 60.0
"""How long a token is still accepted after its pod is gone, or its person has left a group."""
MAX_ACCOUNTS = 10_000


class AccountCache:
    """A cache of accounts by the digest of their token, each with an expiry; it stores no tokens."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._accounts: dict[bytes, tuple[Account, float]] = {}

    def get(self, token: str) -> Account | None:
        """The cached account of a token; None if there is none, or it has expired."""
        with self._lock:
            entry = self._accounts.get(_digest(token))
        return entry[0] if entry and time.time() < entry[1] else None

    def put(self, token: str, account: Account, expiry: float) -> None:
        """Cache the account of a token, never beyond the token's expiry (Unix seconds)."""
        with self._lock:
            if len(self._accounts) >= MAX_ACCOUNTS:
                self._accounts = {key: value for key, value in self._accounts.items() if value[1] > time.time()}
            if len(self._accounts) < MAX_ACCOUNTS:
                self._accounts[_digest(token)] = (account, min(time.time() + LIFETIME, expiry))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


CACHE = AccountCache()


def account_of(token: str, people: People | None) -> Account:
    """The account of a token.

    Raises:
        TokenRefusedError: the token is not valid for this server.
        UnderstudyError: its issuer does not answer.
    """
    cached = CACHE.get(token)
    if cached is not None:
        return cached
    claims = _claims(token)
    if people is not None and claims.get("iss") == people.issuer:
        account = person(token, people)
    else:
        account = Account(service_account(token))
    CACHE.put(token, account, float(claims["exp"]))
    return account


def _claims(token: str) -> dict[str, Any]:
    """A token's unverified claims: they name its issuer, and rule out tokens that cannot be valid."""
    try:
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError as error:
        raise TokenRefusedError("this is not a token with an issuer (JWT)") from error
    expiry = claims.get("exp")
    if not isinstance(expiry, int | float) or isinstance(expiry, bool):
        raise TokenRefusedError("this token never expires; this server accepts only tokens that do")
    if expiry < time.time():
        raise TokenRefusedError("this token has expired; read its file again")
    return claims
