"""Verification of a person's ID token (OpenID Connect Core 1.0, section 2) with its issuer's published keys."""

import json
from functools import lru_cache
from typing import Any
from urllib.request import urlopen

import jwt

from understudy.errors import UnderstudyError
from understudy_server.teams import MAX_NAME, PERSON, Account, People
from understudy_server.token_review import TokenRefusedError

SIGNATURES = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Asymmetric algorithms only: not `none`, and no HMAC, whose key would be the public one."""
SECONDS = 5.0
SKEW = 30.0  # allowed clock skew in seconds


def person(token: str, people: People) -> Account:
    """The account of a token's person.

    Raises:
        TokenRefusedError: it is not from this issuer, not for this server, expired, changed, or names no person.
        UnderstudyError: the issuer's keys cannot be fetched.
    """
    try:
        key = _keys(people.issuer).get_signing_key_from_jwt(token).key
        claims = jwt.decode(
            token,
            key,
            algorithms=SIGNATURES,
            issuer=people.issuer,
            audience=people.audience,
            leeway=SKEW,
            options={"require": ["exp", "iss", "aud"]},
        )
    except jwt.PyJWKClientConnectionError as error:
        raise UnderstudyError(f"{people.issuer}: its keys cannot be fetched ({error})") from error
    except (jwt.PyJWTError, jwt.PyJWKClientError) as error:
        raise TokenRefusedError(f"this ID token is invalid: {error}") from error
    return Account(_name(claims, people.name_claim), _groups(claims, people.groups_claim))


def _name(claims: dict[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not value:
        raise TokenRefusedError(f"this ID token has no claim {claim} that names a person")
    if claim == "email" and claims.get("email_verified") is not True:
        raise TokenRefusedError("this ID token's email was not verified by its issuer (email_verified)")
    if len(PERSON + value) > MAX_NAME or not value.isprintable():
        raise TokenRefusedError(f"this ID token's {claim} cannot be an account's name")
    return PERSON + value


def _groups(claims: dict[str, Any], claim: str) -> frozenset[str]:
    value = claims.get(claim, [])
    if not isinstance(value, list) or not all(isinstance(group, str) for group in value):
        raise TokenRefusedError(f"this ID token's claim {claim} is not a list of groups")
    return frozenset(value)


@lru_cache
def _keys(issuer: str) -> jwt.PyJWKClient:
    """The issuer's keys, fetched on first use and again every five minutes."""
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        with urlopen(url, timeout=SECONDS) as response:
            settings = json.load(response)
    except (OSError, ValueError) as error:
        raise UnderstudyError(f"{url}: cannot be read ({error})") from error
    if (
        not isinstance(settings, dict)
        or settings.get("issuer") != issuer
        or not isinstance(settings.get("jwks_uri"), str)
    ):
        raise UnderstudyError(f"{url}: is not the configuration of the issuer {issuer}")
    return jwt.PyJWKClient(settings["jwks_uri"], lifespan=300, timeout=SECONDS)
