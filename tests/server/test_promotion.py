"""A promotion's records: a mark, a signature that loading checks, and promotions from before this rule."""

import json
import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.registry.reviewers import KEYS, folder_of
from tests.registry.submitted import RECIPE, Pipeline, Server, connect, start_server
from tests.server.accounts import (
    ADMIN,
    ALIAS,
    COMMAND,
    PROMOTION_KEY,
    PUBLIC_KEY,
    REVIEWER,
    SETTINGS,
    TRAINER,
    ask,
    done,
    key_pair,
    make_accounts,
    with_account,
)
from understudy.errors import UnderstudyError
from understudy.registry.audit import lines_of
from understudy.registry.champion import champion
from understudy.registry.client import server_at
from understudy.registry.names import DIGEST
from understudy.registry.promotion_files import Promotion
from understudy.registry.promotions import apply
from understudy.registry.signature import PUBLIC, SIGNATURE
from understudy.registry.version_files import files_digest


@pytest.fixture
def champions(guarded: Server, make_pipeline: Callable[..., Pipeline]) -> tuple[str, str]:
    """The server as a reader, and the name of a model with a champion."""
    created = make_pipeline(with_account(guarded, TRAINER), {**RECIPE, "name": "signed"}).register(
        weights=secrets.token_bytes(4)
    )
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=created.name, alias="champion", version=created.version))
    return with_account(guarded, TRAINER), created.name


def test_a_champion_is_signed_and_whoever_has_the_key_checks_it(
    champions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PUBLIC, PUBLIC_KEY)
    result = champion(*champions)
    assert result is not None
    monkeypatch.setenv(PUBLIC, key_pair()[1])
    with pytest.raises(UnderstudyError, match=r"version \d+, has no valid signature \(understudy\.signature\)"):
        champion(*champions)


@pytest.mark.parametrize("tag", ["understudy.digest", SIGNATURE])
def test_one_that_was_changed_in_the_database_is_refused(
    guarded: Server, champions: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    monkeypatch.setenv(PUBLIC, PUBLIC_KEY)
    uri, name = champions
    client = connect(with_account(guarded, ADMIN))
    version = client.get_model_version_by_alias(name, "champion")
    client.set_model_version_tag(name, version.version, tag, "0" * 64)
    with pytest.raises(UnderstudyError, match="has no valid signature"):
        champion(uri, name)
    client.set_model_version_tag(name, version.version, tag, version.tags[tag])
    assert champion(uri, name)


def test_a_version_whose_alias_was_set_in_the_database_is_not_signed_when_it_is_repaired(
    champions: tuple[str, str], guarded: Server, monkeypatch: pytest.MonkeyPatch, make_pipeline: Callable[..., Pipeline]
) -> None:
    monkeypatch.setenv(PUBLIC, PUBLIC_KEY)
    uri, name = champions
    admin, weights = connect(with_account(guarded, ADMIN)), secrets.token_bytes(4)
    stray = make_pipeline(uri, {**RECIPE, "name": name}).register(weights=weights)
    right = admin.get_model_version_by_alias(name, "champion").version
    database = sqlite3.connect(str(guarded.folder / "server.db"))
    moved = "update registered_model_aliases set version = ? where name = ? and alias = 'champion'"
    database.execute(moved, (stray.version, name))
    database.commit()
    with pytest.raises(UnderstudyError, match="has no valid signature"):
        champion(uri, name)
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=name, alias="champion", version=str(right)))
    assert champion(uri, name)
    database.execute(moved, (stray.version, name))
    database.commit()
    with pytest.raises(UnderstudyError, match="has no valid signature"):
        champion(uri, name)


def test_nobody_else_sets_a_signature(guarded: Server, champions: tuple[str, str]) -> None:
    named = {"name": champions[1], "version": "1", "key": SIGNATURE, "value": "mine"}
    for account in (TRAINER, REVIEWER):
        assert ask(guarded, account, "POST", "model-versions/set-tag", **named)[0] == 403
    marked = {"name": champions[1], "source": "models:/m-1", "tags": [{"key": SIGNATURE, "value": "mine"}]}
    assert ask(guarded, TRAINER, "POST", "model-versions/create", **marked) == (
        400,
        f"only the server sets the tag {SIGNATURE}",
    )


def test_files_in_git_promote_with_a_reviewers_account_and_with_no_other(
    guarded: Server, make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    created = make_pipeline(with_account(guarded, TRAINER), {**RECIPE, "name": "by-commit"}).register()
    digest = (server_at(with_account(guarded, TRAINER)).version_tags(created.name, str(created.version)) or {})[DIGEST]
    admin = with_account(guarded, ADMIN)
    files = files_digest(admin, created.name, str(created.version), digest)
    promotion = Promotion(model=created.name, version=str(created.version), digest=digest, files=files)
    for name in ("rita", "sam"):
        promotion = promotion.approved_by(name, KEYS[name])
    (folder_of(tmp_path / "promotions") / "by-commit.yaml").write_text(promotion.text())

    def apply_as(account: str) -> list[str]:
        server = server_at(with_account(guarded, account))
        return apply(tmp_path / "promotions", server, time.time(), change=True, files=lambda _: files)

    with pytest.raises(UnderstudyError, match="pipeline may not move the alias champion of by-commit"):
        apply_as(TRAINER)
    assert "by-commit: version 1 is the champion now; it had none" in apply_as(REVIEWER)
    assert not [line for line in apply_as(REVIEWER) if line.startswith("by-commit")]
    lines = [json.loads(line) for line in lines_of(with_account(guarded, ADMIN))]
    [moved] = [line for line in lines if line["model"] == "by-commit" and line["alias"] == "champion"]
    assert (moved["who"], moved["before"]["aliases"], moved["after"]["aliases"]["champion"]) == (
        REVIEWER,
        {"challenger": 1},
        1,
    )


@pytest.mark.full
def test_promotions_of_an_older_server_are_protected_from_the_next_start_on(tmp_path: Path) -> None:
    unsigned = {**SETTINGS, "UNDERSTUDY_PROMOTION_KEY": ""}
    server = start_server(tmp_path, COMMAND, **unsigned)
    make_accounts(server, TRAINER, REVIEWER)
    created = Pipeline(tmp_path / "pipeline", with_account(server, TRAINER)).register()
    done(ask(server, REVIEWER, "POST", ALIAS, name=created.name, alias="champion", version=created.version))
    assert SIGNATURE not in connect(with_account(server, ADMIN)).get_model_version(created.name, created.version).tags
    server.stop()
    database = sqlite3.connect(tmp_path / "server.db")
    assert database.execute("delete from understudy_kept").rowcount
    database.commit()
    database.close()
    server = start_server(tmp_path, COMMAND, **{**SETTINGS, "UNDERSTUDY_PROMOTION_KEY": PROMOTION_KEY})
    try:
        run = connect(with_account(server, ADMIN)).get_model_version(created.name, created.version).run_id
        assert ask(server, TRAINER, "POST", "runs/delete", run_id=run)[0] == 403
        done(ask(server, REVIEWER, "POST", ALIAS, name=created.name, alias="champion", version=created.version))
        assert SIGNATURE in connect(with_account(server, ADMIN)).get_model_version(created.name, created.version).tags
    finally:
        server.stop()
