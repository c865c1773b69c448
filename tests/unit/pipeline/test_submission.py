"""Submitting to a KFP API server, whose answers about runs were recorded from a real one."""

from collections.abc import Iterator

import pytest

from tests.unit.pipeline.kfp_server import TOKEN, Kfp, recorded, serving
from understudy.errors import InputError, UnderstudyError
from understudy.pipelines import submission
from understudy.pipelines.submission import Server
from understudy.recipe import Recipe

IMAGES = "registry.example/understudy:1"


@pytest.fixture
def kfp() -> Iterator[Kfp]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "EVERY", 0.01)
    monkeypatch.setattr(submission, "RENEWAL", 0.05)


def test_a_run_is_made_of_the_compiled_pipeline(kfp: Kfp, recipe: Recipe) -> None:
    server = Server(kfp.address, "team", lambda: TOKEN)
    assert submission.submit(server, recipe, IMAGES, None) == "r1"
    assert kfp.posted["experiment_id"] == "e1"
    spec = kfp.posted["pipeline_spec"]
    assert spec["pipeline_spec"]["pipelineInfo"]["name"] == "digits"
    assert "kubernetes" in spec["platform_spec"]["platforms"]
    assert server.page("r1") == f"{kfp.address}/#/runs/details/r1"


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        ("succeeded", 0, "succeeded"),
        ("wrong-override", 1, "failed: start: overrides gate.margin=7: "),
        ("rejected", 1, "failed: rejected: rejected by "),
        ("terminated", 1, "failed: teacher: this process was asked to end (SIGTERM): what is done is kept"),
    ],
)
def test_a_run_is_followed_to_its_end(kfp: Kfp, run: str, code: int, words: str) -> None:
    """Through the states that the real one had, up to its first end; one that was just made has none."""
    history = [str(entry["state"]) for entry in recorded(run, "v2beta1")["state_history"]]
    history = history[: history.index("SUCCEEDED" if code == 0 else "FAILED") + 1]
    kfp.states, kfp.recorded = ["", history[0], *history], run
    reports: list[str] = []
    server = Server(kfp.address, None, lambda: TOKEN, "https://kfp.example/")
    assert submission.follow(server, "r1", reports.append) == code
    assert reports[:-1] == [state.lower() for state in history[:-1]]
    assert reports[-1].startswith(words)
    assert code == 0 or reports[-1].endswith("; see https://kfp.example/#/runs/details/r1")
    assert submission.UNKNOWN not in reports[-1]


def test_a_token_that_was_replaced_while_a_run_is_followed_is_read_again(kfp: Kfp) -> None:
    kfp.states = ["RUNNING", "RUNNING", "SUCCEEDED"]
    reports: list[str] = []
    later: list[str | Exception] = [TOKEN, TOKEN, OSError("no such file"), "the-next"]

    def token() -> str:
        current_token = later.pop(0) if len(later) > 1 else later[0]
        if isinstance(current_token, Exception):
            raise InputError(str(current_token))
        return str(current_token)

    def tell(state: str) -> None:
        reports.append(state)
        kfp.token = "the-next"

    assert submission.follow(Server(kfp.address, None, token), "r1", tell) == 0
    assert reports == ["running", "succeeded"]
    assert later == ["the-next"]


def test_a_server_that_was_away_leaves_its_time_to_a_token(kfp: Kfp) -> None:
    kfp.states = ["RUNNING", "RUNNING", "RUNNING", "SUCCEEDED"]
    current = iter([TOKEN, *[OSError("no route")] * 20, TOKEN, "the-next"])

    def token() -> str:
        current_token = next(current)
        if isinstance(current_token, OSError):
            raise UnderstudyError(str(current_token))
        return current_token

    def tell(state: str) -> None:
        kfp.token = "the-next"

    assert submission.follow(Server(kfp.address, "team", token), "r1", tell) == 0


def test_a_token_that_expires_and_is_not_replaced_ends_the_following(kfp: Kfp) -> None:
    kfp.states = ["RUNNING"] * 9

    def tell(state: str) -> None:
        kfp.token = "the-next"

    with pytest.raises(InputError, match=r"KFP refuses this token \(401\)"):
        submission.follow(Server(kfp.address, "team", lambda: TOKEN), "r1", tell)
    assert len(kfp.states) > 1, "it was not asked for long"


def test_a_token_that_is_not_accepted_is_told(kfp: Kfp, recipe: Recipe) -> None:
    with pytest.raises(InputError, match=r"KFP refuses this token \(401\).*KFP_TOKEN"):
        submission.submit(Server(kfp.address, "team", lambda: "old"), recipe, IMAGES, None)


def test_a_server_that_fails_is_told(kfp: Kfp, recipe: Recipe) -> None:
    kfp.status = 500
    with pytest.raises(UnderstudyError, match="KFP says 500"):
        submission.submit(Server(kfp.address, "team", lambda: TOKEN), recipe, IMAGES, None)


def test_a_server_that_does_not_answer_is_told(recipe: Recipe) -> None:
    with pytest.raises(InputError, match=r"http://127\.0\.0\.1:9: no KFP API server answers here"):
        submission.submit(Server("http://127.0.0.1:9", "team", lambda: None), recipe, IMAGES, None)


@pytest.mark.parametrize("version", ["2.16.1", "2.5.0", "v2.18.0", "3.17.0"])
def test_a_server_of_another_minor_version_is_refused_before_anything_is_sent(
    kfp: Kfp, recipe: Recipe, version: str
) -> None:
    kfp.version = {"tag_name": version}
    with pytest.raises(InputError, match=rf"KFP {version}, and pipelines are compiled here for 2\.17"):
        submission.submit(Server(kfp.address, "team", lambda: TOKEN), recipe, IMAGES, None)
    assert kfp.posted == {}


@pytest.mark.parametrize("version", ["2.17.9", "unknown", "a-build-of-ours"])
def test_another_patch_and_a_build_without_a_version_are_taken(kfp: Kfp, recipe: Recipe, version: str) -> None:
    kfp.version = {"tag_name": version}
    assert submission.submit(Server(kfp.address, "team", lambda: TOKEN), recipe, IMAGES, None) == "r1"


def test_what_says_no_version_is_no_kfp(kfp: Kfp, recipe: Recipe) -> None:
    kfp.version = {"status": "ok"}
    with pytest.raises(InputError, match="this is no KFP API server; correct --host"):
        submission.submit(Server(kfp.address, "team", lambda: TOKEN), recipe, IMAGES, None)


def test_who_asks_is_said_where_no_gateway_says_it(kfp: Kfp, recipe: Recipe) -> None:
    server = Server(kfp.address, "team", lambda: TOKEN, None, "ada@example.com")
    submission.submit(server, recipe, IMAGES, None)
    submission.follow(server, "r1", lambda state: None)
    assert kfp.users == {"ada@example.com"}
    assert server.client().get_user_namespace() == "team"
