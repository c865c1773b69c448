import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from tests.server.issuer import AUDIENCE, Issuer, issuer
from tests.unit.kube.api_server import KEY, ApiServer, api_server
from understudy_server import tokens
from understudy_server.teams import Account, People
from understudy_server.token_review import TokenRefusedError
from understudy_server.tokens import AccountCache, account_of

POD = "system:serviceaccount:vision:pipeline"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.setattr(tokens, "CACHE", AccountCache())
    with api_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def provider() -> Iterator[Issuer]:
    with issuer() as running:
        yield running


def test_the_api_server_is_asked_once_a_minute(cluster: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    token = cluster.issue("vision:pipeline")
    assert [account_of(token, None) for _ in range(3)] == [Account(POD)] * 3
    assert cluster.reviews == 1
    cluster.gone.add(token)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    with pytest.raises(TokenRefusedError):
        account_of(token, None)


def test_a_token_is_never_good_for_longer_than_it_lives(cluster: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    token = cluster.issue("vision:pipeline", life=20)
    assert account_of(token, None) == Account(POD)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 21)
    with pytest.raises(TokenRefusedError, match="has expired"):
        account_of(token, None)


def test_malformed_tokens_are_not_sent_to_the_api_server(cluster: ApiServer) -> None:
    endless = jwt.encode({"aud": ["mlflow"]}, KEY.ljust(64), "HS512")
    for token, message in (("", "not a token"), ("a.b.c", "not a token"), (endless, "never expires")):
        with pytest.raises(TokenRefusedError, match=message):
            account_of(token, None)
    with pytest.raises(TokenRefusedError, match="has expired"):
        account_of(cluster.issue("vision:pipeline", life=-1), None)
    assert cluster.reviews == 0


def test_the_issuer_decides_who_is_asked(cluster: ApiServer, provider: Issuer) -> None:
    people = People(issuer=provider.address, audience=AUDIENCE)
    assert account_of(provider.issue("rita"), people) == Account("person:rita")
    assert account_of(cluster.issue("vision:pipeline"), people) == Account(POD)
    with pytest.raises(TokenRefusedError):  # nobody else's tokens of people are good
        account_of(provider.issue("rita"), None)
    assert cluster.reviews == 2


def test_no_more_tokens_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_ACCOUNTS", 2)
    cache, later = AccountCache(), time.time() + 600
    for number in range(3):
        cache.put(str(number), Account("a"), later)
    assert [cache.get(str(number)) is not None for number in range(3)] == [True, True, False]
