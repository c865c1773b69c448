"""The server's accounts and their roles in teams: the setting UNDERSTUDY_ACCOUNTS.

Names are complete, never patterns. A service account is system:serviceaccount:NAMESPACE:NAME, as in Kubernetes, a
person who signs in through OpenID Connect person:NAME, and a group of theirs group:NAME. Any other name is an account
with a password.
"""

import os
import re
from collections.abc import Iterable
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from understudy.errors import InputError

SETTING = "UNDERSTUDY_ACCOUNTS"
SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:[a-z0-9-]{1,63}:[a-z0-9.-]{1,253}")
PERSON, GROUP = "person:", "group:"
MAX_NAME = 255  # characters of an account's name in MLflow's database
LOCAL = ("127.0.0.1", "localhost", "::1")


class Account(NamedTuple):
    """An account's name, and the groups in its token."""

    name: str
    groups: frozenset[str] = frozenset()


def _complete_name(name: str) -> str:
    if "*" in name or name != name.strip() or len(name) > MAX_NAME:
        raise ValueError(f"{name!r}: a name is complete, not a pattern, and has at most {MAX_NAME} characters")
    if ":" in name and not name.startswith((PERSON, GROUP)) and not SERVICE_ACCOUNT.fullmatch(name):
        raise ValueError(
            f"{name!r}: write system:serviceaccount:NAMESPACE:NAME, {PERSON}NAME, {GROUP}NAME, or the name of an "
            "account with a password"
        )
    return name


def _issuer(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme != "https" and parts.hostname not in LOCAL:
        raise ValueError("is an https:// address: keys that come over http could be anybody's")
    return address


Name = Annotated[str, Field(min_length=1), AfterValidator(_complete_name)]


class Section(BaseModel):
    """A part of the setting: frozen, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Team(Section):
    """The accounts of a team. All of them read the team's resources."""

    writers: frozenset[Name] = frozenset()
    """They create and change experiments and models, which belong to the team."""
    readers: frozenset[Name] = frozenset()
    reviewers: frozenset[Name] = frozenset()
    """They move the alias champion of the team's models."""

    @model_validator(mode="after")
    def _writers_do_not_review(self) -> "Team":
        if both := sorted(self.writers & self.reviewers):
            raise ValueError(f"{both[0]} is a writer and a reviewer: who trains a model must not promote it")
        return self


class People(Section):
    """An issuer of ID tokens (OpenID Connect) for people."""

    issuer: Annotated[str, AfterValidator(_issuer)]
    audience: str = "mlflow"
    """The client id for which the tokens are issued."""
    name_claim: str = "sub"
    """The claim that names a person."""
    groups_claim: str = "groups"


class Accounts(Section):
    """The setting."""

    teams: dict[Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,62}$")], Team] = {}
    people: People | None = None

    @model_validator(mode="after")
    def _writers_have_one_team(self) -> "Accounts":
        teams: dict[str, str] = {}
        for team, members in self.teams.items():
            for name in sorted(members.writers):
                if name in teams:
                    raise ValueError(f"{name} is a writer of {teams[name]} and of {team}: a writer has one team")
                teams[name] = team
        return self

    def reads(self, account: Account) -> frozenset[str]:
        """The teams whose resources an account reads."""
        return frozenset(
            name for name, team in self.teams.items() if _in(account, team.writers | team.readers | team.reviewers)
        )

    def writes(self, account: Account) -> frozenset[str]:
        """The teams for which an account creates resources: more than one only through groups."""
        return frozenset(name for name, team in self.teams.items() if _in(account, team.writers))

    def reviews(self, account: Account) -> frozenset[str]:
        """The teams whose champions an account moves: none for which it writes, even through a group."""
        teams = frozenset(name for name, team in self.teams.items() if _in(account, team.reviewers))
        return teams - self.writes(account)


def _in(account: Account, members: Iterable[str]) -> bool:
    names = {account.name, *(f"{GROUP}{group}" for group in account.groups)}
    return not names.isdisjoint(members)


def read() -> Accounts:
    """The setting of this server; no teams if it is missing.

    Raises:
        InputError: it is invalid.
    """
    try:
        return Accounts.model_validate(yaml.safe_load(os.environ.get(SETTING, "")) or {})
    except yaml.YAMLError as error:
        raise InputError(f"{SETTING}: is not YAML ({str(error).splitlines()[0]})") from error
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{SETTING}: {location}{': ' if location else ''}{first['msg']}") from error
