import subprocess
from pathlib import Path

import pytest

from understudy.cli.branch import commit
from understudy.errors import InputError


def git(folder: Path, *arguments: str) -> str:
    author = ["-c", "user.name=rita", "-c", "user.email=rita@example.com"]
    return subprocess.run(
        ["git", "-C", str(folder), *author, *arguments], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "rita")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "rita@example.com")
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a").write_text("a\n")
    git(folder, "add", "a")
    git(folder, "commit", "-qm", "first")
    return folder


def test_a_commit_changes_nothing_that_is_checked_out(repository: Path) -> None:
    (repository / "a").write_text("not committed\n")
    new_commit = commit("promote/x", {repository / "below" / "b": "b\n"}, "Promote x\n\nwith evidence\n")
    assert git(repository, "rev-parse", "promote/x").strip() == new_commit
    assert git(repository, "show", "--format=%B", "--stat", new_commit).split("\n")[:3] == [
        "Promote x",
        "",
        "with evidence",
    ]
    assert git(repository, "show", "promote/x:below/b") == "b\n"
    assert git(repository, "show", "promote/x:a") == "a\n", "only the committed file is in it"
    assert git(repository, "status", "--short").strip() == "M a"
    assert git(repository, "branch", "--show-current").strip() == "main"


def test_a_branch_that_is_there_is_not_taken(repository: Path) -> None:
    commit("promote/x", {repository / "b": ""}, "x")
    with pytest.raises(InputError, match="there is a branch promote/x already"):
        commit("promote/x", {repository / "b": ""}, "x")


def test_without_a_repository_or_a_commit_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a git repository"):
        commit("x", {tmp_path / "new" / "b": ""}, "x")
    git(tmp_path, "init", "-q")
    with pytest.raises(InputError, match="git rev-parse: "):
        commit("x", {tmp_path / "b": ""}, "x")
