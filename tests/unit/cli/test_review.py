"""From a challenger to the champion, by commits: the commands as two reviewers and a GitOps engine would give them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.registry.reviewers import folder_of, private
from tests.registry.submitted import RECIPE, Pipeline
from tests.unit.cli.test_branch import git, repository  # noqa: F401 (a fixture)
from understudy.cli import app
from understudy.errors import InputError, UnderstudyError
from understudy.registry.client import server_at
from understudy.registry.server import tracking_uri
from understudy.store.files import sha256

MODEL = "digits of ours"
FILE = f"digits-of-ours-{sha256(MODEL.encode())[:6]}"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Two students on a local registry."""
    folder = tmp_path_factory.mktemp("review")
    registered = Pipeline(folder, tracking_uri(folder / ".understudy", None), {**RECIPE, "register": {"model": MODEL}})
    registered.register()
    return registered


def output_of(pipeline: Pipeline, *arguments: str, stdin: str = "") -> str:
    """The output of a command."""
    done = CliRunner().invoke(app, ["--tracking-uri", pipeline.uri, "review", *arguments], input=stdin)
    if done.exception:
        raise done.exception
    return done.stdout


def test_a_challenger_becomes_the_champion_by_commits_and_a_revert_takes_it_back(
    pipeline: Pipeline,
    repository: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = folder_of(repository / "manifests" / "promotions")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "policy")
    option = ("--promotions", str(folder))

    def champion() -> str | None:
        return server_at(pipeline.uri).aliases(MODEL).get("champion")

    def promoted(version: str) -> None:
        assert f"promote/{FILE}-{version}" in output_of(pipeline, "request", MODEL, *option)
        message = git(repository, "log", "-1", "--format=%B", f"promote/{FILE}-{version}")
        assert f"Promote {MODEL} to version {version}" in message
        assert "[0.96, 0.99]" in message, "the evidence"
        git(repository, "switch", "-q", f"promote/{FILE}-{version}")
        for name in ("rita", "sam"):
            with pytest.raises(InputError, match="the policy asks for 2 people"):
                output_of(pipeline, "apply", str(folder))
            key = private(name, tmp_path, "secret" if name == "sam" else "")
            approved = output_of(pipeline, "approve", MODEL, "--as", name, "--key", str(key), *option, stdin="secret\n")
            assert f"version {version}, approved by " in approved
            git(repository, "commit", "-qam", f"{name} approves")
        git(repository, "switch", "-q", "main")
        git(repository, "merge", "-q", "--no-ff", "-m", "merge", f"promote/{FILE}-{version}")
        with pytest.raises(UnderstudyError, match=f"version {version} is to be the champion"):
            output_of(pipeline, "apply", str(folder), "--check")
        assert f"version {version} is the champion now" in output_of(pipeline, "apply", str(folder))
        assert champion() == version
        assert output_of(pipeline, "apply", str(folder), "--check") == "registry and files agree\n"

    promoted("1")
    assert output_of(pipeline) == "nothing is up for review\n"
    pipeline.register(run=pipeline.new_run(), weights=b"better")
    assert output_of(pipeline).splitlines()[1].split()[:5] == [*MODEL.split(), "2", "1"]
    [listed] = json.loads(output_of(pipeline, "--json"))
    assert (listed["model"], listed["version"], listed["champion"]) == (MODEL, "2", "1")
    assert json.loads(output_of(pipeline, "show", MODEL, "--json"))["champion"] == "1"
    assert f"# {MODEL}, version 2, against version 1" in output_of(pipeline, "show", MODEL)
    promoted("2")
    git(repository, "revert", "-m", "1", "--no-edit", "HEAD")
    assert "version 1 is the champion now; it was version 2" in output_of(pipeline, "apply", str(folder))
    assert champion() == "1"


def test_nobody_approves_what_nobody_asked_for(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "promotions")
    key = str(private("rita", tmp_path))
    with pytest.raises(InputError, match="no file promotes nothing; understudy review request nothing writes one"):
        output_of(pipeline, "approve", "nothing", "--as", "rita", "--key", key, "--promotions", str(folder))
