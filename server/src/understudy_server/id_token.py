"""Verification of a person's ID token (OpenID Connect Core 1.0, section 2) with its issuer's published keys."""

import json
from functools import lru_cache
from typing import Any
from urllib.request import urlopen

import jwt

from understudy.errors import UnderstudyError
from understudy_server.teams import LONGEST, PERSON, Account, People
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
        raise UnderstudyError(f"{people.issuer}: its keys cannot be had ({error})") from error
    except (jwt.PyJWTError, jwt.PyJWKClientError) as error:
        raise TokenRefusedError(f"this ID token is not good: {error}") from error
    return Account(_name(claims, people.name_claim), _groups(claims, people.groups_claim))


def _name(claims: dict[str, Any], claim: str) -> str:
    found = claims.get(claim)
    if not isinstance(found, str) or not found:
        raise TokenRefusedError(f"this ID token has no claim {claim} that names a person")
    if claim == "email" and claims.get("email_verified") is not True:
        raise TokenRefusedError("this ID token's email was not verified by its issuer (email_verified)")
    if len(PERSON + found) > LONGEST or not found.isprintable():
        raise TokenRefusedError(f"this ID token's {claim} cannot be an account's name")
    return PERSON + found


def _groups(claims: dict[str, Any], claim: str) -> frozenset[str]:
    found = claims.get(claim, [])
    if not isinstance(found, list) or not all(isinstance(group, str) for group in found):
        raise TokenRefusedError(f"this ID token's claim {claim} is no list of groups")
    return frozenset(found)


@lru_cache
def _keys(issuer: str) -> jwt.PyJWKClient:
    """The issuer's keys, fetched on first use and again every five minutes."""
    place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        with urlopen(place, timeout=SECONDS) as response:
            said = json.load(response)
    except (OSError, ValueError) as error:
        raise UnderstudyError(f"{place}: cannot be read ({error})") from error
    if not isinstance(said, dict) or said.get("issuer") != issuer or not isinstance(said.get("jwks_uri"), str):
        raise UnderstudyError(f"{place}: is not the configuration of the issuer {issuer}")
    return jwt.PyJWKClient(said["jwks_uri"], lifespan=300, timeout=SECONDS)
