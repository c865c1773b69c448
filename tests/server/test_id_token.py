import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.server.issuer import AUDIENCE, Issuer, issuer
from understudy.errors import UnderstudyError
from understudy_server.id_token import person
from understudy_server.teams import Account, People
from understudy_server.token_review import TokenRefusedError


@pytest.fixture(scope="module")
def provider() -> Iterator[Issuer]:
    with issuer() as running:
        yield running


def people(provider: Issuer, **changed: str) -> People:
    return People(issuer=provider.address, audience=AUDIENCE, **changed)


def test_a_token_names_a_person_and_their_groups(provider: Issuer) -> None:
    token = provider.issue("rita", "leads", "ml")
    assert person(token, people(provider)) == Account("person:rita", frozenset({"leads", "ml"}))
    several = provider.issue("rita", aud=["other", AUDIENCE], groups=None)
    assert person(several, people(provider)) == Account("person:rita")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"aud": "another"}, "Audience doesn't match"),
        ({"iss": "https://login.example.com"}, "Invalid issuer"),
        ({"exp": time.time() - 60}, "expired"),
        ({"exp": None}, "exp"),
        ({"nbf": time.time() + 86400}, "not yet valid"),
        ({"sub": None}, "no claim sub"),
        ({"sub": ""}, "no claim sub"),
        ({"sub": "a\nb"}, "cannot be an account's name"),
        ({"sub": "a" * 255}, "cannot be an account's name"),
        ({"groups": "leads"}, "not a list of groups"),
    ],
)
def test_a_token_that_is_not_for_this_server_is_refused(
    provider: Issuer, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(TokenRefusedError, match=message):
        person(provider.issue("rita", **changed), people(provider))


def test_nobody_else_signs_for_the_issuer(provider: Issuer) -> None:
    other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(TokenRefusedError, match="Signature verification failed"):
        person(provider.issue("rita", key=other_key), people(provider))
    public = provider.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header, claims, _ = provider.issue("rita", key=b"-" * 64, algorithm="HS256").split(".")
    digest = hmac.digest(public, f"{header}.{claims}".encode(), "sha256")  # with the key that everybody can fetch
    forged = f"{header}.{claims}.{urlsafe_b64encode(digest).decode().rstrip('=')}"
    with pytest.raises(TokenRefusedError, match="The specified alg value is not allowed"):
        person(forged, people(provider))
    signed = provider.issue("rita")
    with pytest.raises(TokenRefusedError):
        person(signed.rpartition(".")[0] + ".", people(provider))


def test_an_email_counts_only_when_it_was_verified(provider: Issuer) -> None:
    by_email = people(provider, name_claim="email")
    verified = provider.issue("1", email="rita@example.com", email_verified=True)
    assert person(verified, by_email).name == "person:rita@example.com"
    for claims in ({}, {"email_verified": False}, {"email_verified": "true"}):
        with pytest.raises(TokenRefusedError, match="was not verified"):
            person(provider.issue("1", email="rita@example.com", **claims), by_email)


def test_an_issuer_that_cannot_be_asked_is_no_refusal() -> None:
    with issuer() as away:
        token = away.issue("rita")
    with pytest.raises(UnderstudyError, match="openid-configuration: cannot be read") as raised:
        person(token, people(away))
    assert not isinstance(raised.value, TokenRefusedError)


@pytest.mark.parametrize("configuration", [{"issuer": "https://login.example.com", "jwks_uri": "x"}, {}, []])
def test_a_configuration_of_another_issuer_is_refused(configuration: Any) -> None:
    with issuer() as odd:
        odd.says = json.loads(json.dumps(configuration))
        with pytest.raises(UnderstudyError, match="is not the configuration of the issuer"):
            person(odd.issue("rita"), people(odd))
