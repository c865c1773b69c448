"""understudy submit: its output and exit codes, against a KFP server and a real MLflow database."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.registry.submitted import connect
from tests.unit.pipeline.kfp_server import TOKEN, Kfp, serving
from understudy.pipelines import submission
from understudy.registry.names import PARENT, REJECTED_BY, RUN, STEP, VERDICT

DIGITS = str(ROOT / "recipes" / "digits.yaml")


@pytest.fixture
def kfp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kfp]:
    monkeypatch.setattr(submission, "EVERY", 0.01)
    monkeypatch.setenv("KFP_TOKEN", TOKEN)
    with serving() as server:
        yield server


@pytest.fixture
def submit(understudy: Any, kfp: Kfp) -> Any:
    """The command, for the digits and that server."""
    return lambda *options: understudy("submit", DIGITS, "--images", "r.example/u:1", "--host", kfp.address, *options)


def test_a_submitted_run_is_printed_with_where_it_is_shown(submit: Any, kfp: Kfp) -> None:
    done = submit()
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == f"{kfp.address}/#/runs/details/r1"
    assert kfp.posted["experiment_id"] == "e1"


def test_the_pages_may_have_another_address_than_the_api(submit: Any) -> None:
    done = submit("--ui", "https://pipelines.example/kfp/")
    assert done.out.splitlines()[0] == "https://pipelines.example/kfp/#/runs/details/r1"


def test_a_token_comes_from_a_file_before_the_environment(submit: Any, kfp: Kfp, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("an-old-one\n")
    done = submit("--token-file", str(tmp_path / "token"))
    assert done.code == 2
    assert "KFP refuses this token (401)" in done.err
    assert "an-old-one" not in done.err + done.out
    missing = submit("--token-file", str(tmp_path / "none"))
    assert missing.code == 2
    assert "none: cannot be read (No such file or directory)" in missing.err


def test_waiting_needs_the_server_that_has_the_verdict(submit: Any, kfp: Kfp) -> None:
    done = submit("--wait")
    assert done.code == 2
    assert "--wait: the verdict is in the cluster's MLflow; name it with --tracking-uri" in done.err
    assert not kfp.posted, "nothing was submitted"


def test_waiting_for_a_run_that_fails_ends_with_1(
    submit: Any, kfp: Kfp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfp.states = ["RUNNING", "FAILED"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/m.db")
    done = submit("--wait")
    assert done.code == 1
    assert done.out.splitlines()[-1].startswith("failed: start: overrides gate.margin=7: gate.margin: must be less")


@pytest.mark.parametrize(
    ("tags", "state", "code", "last_line"),
    [
        ({VERDICT: "approved"}, "SUCCEEDED", 0, "approved"),
        ({VERDICT: "rejected", REJECTED_BY: "size, latency"}, "SUCCEEDED", 3, "rejected by size, latency"),
        ({VERDICT: "rejected", REJECTED_BY: "size"}, "FAILED", 3, "rejected by size"),
        ({VERDICT: "rejected"}, "SUCCEEDED", 3, "rejected"),
    ],
)
def test_waiting_ends_with_the_verdict_and_its_rules(
    submit: Any,
    kfp: Kfp,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tags: dict[str, str],
    state: str,
    code: int,
    last_line: str,
) -> None:
    kfp.states = ["RUNNING", state]
    uri = f"sqlite:///{tmp_path}/m.db"
    client = connect(uri)
    client.create_run(client.create_experiment("digits"), tags={RUN: "r1", STEP: PARENT, **tags})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    done = submit("--wait")
    assert (done.code, done.out.splitlines()[-1]) == (code, last_line)
