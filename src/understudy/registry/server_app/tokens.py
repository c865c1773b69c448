"""Whose a token is: asked once of who issued it, and remembered for at most a minute."""

import hashlib
import time
from threading import Lock
from typing import Any

import jwt

from understudy.registry.server_app.id_token import person
from understudy.registry.server_app.teams import Account, People
from understudy.registry.server_app.token_review import TokenRefusedError, service_account

SECONDS = 60.0
"""For so long a token goes on being taken whose pod is gone, or whose person left a group's team."""
MOST = 10_000


class Remembered:
    """Accounts by the digest of their token, each until a time: no token is kept."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[bytes, tuple[Account, float]] = {}

    def get(self, token: str) -> Account | None:
        """Whose a token is, if that was asked lately."""
        with self._lock:
            found = self._known.get(_digest(token))
        return found[0] if found and time.time() < found[1] else None

    def keep(self, token: str, account: Account, expiry: float) -> None:
        """Remember whose a token is, never for longer than it lives (Unix seconds)."""
        with self._lock:
            if len(self._known) >= MOST:
                self._known = {key: value for key, value in self._known.items() if value[1] > time.time()}
            if len(self._known) < MOST:
                self._known[_digest(token)] = (account, min(time.time() + SECONDS, expiry))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


KNOWN = Remembered()


def account_of(token: str, people: People | None) -> Account:
    """Whose a token is.

    Raises:
        TokenRefusedError: it is no token for this server.
        UnderstudyError: who issued it cannot be asked.
    """
    known = KNOWN.get(token)
    if known is not None:
        return known
    claims = _claims(token)
    if people is not None and claims.get("iss") == people.issuer:
        account = person(token, people)
    else:
        account = Account(service_account(token))
    KNOWN.keep(token, account, float(claims["exp"]))
    return account


def _claims(token: str) -> dict[str, Any]:
    """What a token says, unchecked: it tells whom to ask about it, and one that cannot be good is not asked about."""
    try:
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError as error:
        raise TokenRefusedError("this is no token that says who issued it (JWT)") from error
    expiry = claims.get("exp")
    if not isinstance(expiry, int | float) or isinstance(expiry, bool):
        raise TokenRefusedError("this token never expires; this server takes none of these")
    if expiry < time.time():
        raise TokenRefusedError("this token has expired; read it anew from where it is kept")
    return claims
