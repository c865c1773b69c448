import pytest

from understudy.errors import InputError
from understudy_server.teams import Account, Accounts, read

POD = "system:serviceaccount:vision:understudy-pipeline"
GIVEN = """
teams:
  vision: {writers: ["system:serviceaccount:vision:understudy-pipeline"], readers: ["group:ml"], reviewers: [rita]}
  speech: {writers: ["system:serviceaccount:speech:understudy-pipeline", "group:leads"], reviewers: ["group:ml"]}
people: {issuer: "https://login.example.com", audience: registry, name_claim: email}
"""


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> Accounts:
    monkeypatch.setenv("UNDERSTUDY_ACCOUNTS", GIVEN)
    return read()


def test_accounts_are_those_of_the_setting(accounts: Accounts) -> None:
    pod, rita = Account(POD), Account("rita")
    assert (accounts.writes(pod), accounts.reads(pod), accounts.reviews(pod)) == ({"vision"}, {"vision"}, set())
    assert (accounts.writes(rita), accounts.reads(rita), accounts.reviews(rita)) == (set(), {"vision"}, {"vision"})
    for name in ("nobody", POD + "2", "x" + POD, "system:serviceaccount:visio:understudy-pipeline", "vision"):
        assert not accounts.reads(Account(name))


def test_groups_count_by_their_whole_name(accounts: Accounts) -> None:
    assert accounts.reads(Account("person:a", frozenset({"ml"}))) == {"vision", "speech"}
    assert not accounts.reads(Account("person:a", frozenset({"ml2", "group:ml"})))
    assert not accounts.reads(Account("ml"))


def test_who_writes_for_a_team_through_a_group_reviews_nothing_of_it(accounts: Accounts) -> None:
    assert accounts.reviews(Account("person:a", frozenset({"ml"}))) == {"speech"}
    assert accounts.reviews(Account("person:a", frozenset({"ml", "leads"}))) == set()


def test_without_the_setting_nobody_may_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNDERSTUDY_ACCOUNTS", raising=False)
    assert read() == Accounts()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("teams: {v: {writers: ['system:serviceaccount:*:understudy-pipeline']}}", "a name is complete"),
        ("teams: {v: {writers: ['system:serviceaccount:vision']}}", "write system:serviceaccount:NAMESPACE:NAME"),
        ("teams: {v: {writers: ['serviceaccount:vision:a']}}", "write system:serviceaccount:NAMESPACE:NAME"),
        (f"teams: {{v: {{writers: ['system:serviceaccount:a:{'b' * 253}']}}}}", "at most 255 characters"),
        ("teams: {v: {writers: [' a']}}", "a name is complete"),
        ("teams: {v: {writers: ['']}}", "at least 1 character"),
        ("teams: {v: {writers: [a], reviewers: [a]}}", "who trains a model must not promote it"),
        ("teams: {v: {writers: [a]}, w: {writers: [a]}}", "a is a writer of v and of w"),
        ("teams: {'a:b': {}}", "teams.a:b"),
        ("teams: {v: {owners: [a]}}", "teams.v.owners: "),
        ("people: {issuer: 'http://login.example.com'}", "people.issuer: .*is an https:// address"),
        ("people: {}", "people.issuer: "),
        ("teams: [", "is not YAML"),
    ],
)
def test_a_wrong_setting_is_an_error_with_its_key(monkeypatch: pytest.MonkeyPatch, setting: str, message: str) -> None:
    monkeypatch.setenv("UNDERSTUDY_ACCOUNTS", setting)
    with pytest.raises(InputError, match=f"^UNDERSTUDY_ACCOUNTS: .*{message}"):
        read()
