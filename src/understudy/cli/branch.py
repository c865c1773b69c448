"""Changes of files as a commit on a new branch; the checkout does not change."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from understudy.errors import InputError, UnderstudyError


def commit(branch: str, files: Mapping[Path, str], message: str) -> str:
    """Commit files on a new branch, on top of HEAD.

    Args:
        branch: its name.
        files: their contents, by their paths; all in one repository.
        message: the commit's.

    Returns:
        The commit.

    Raises:
        InputError: the paths are in no Git repository, it has no commit yet, or the branch exists.
        UnderstudyError: Git fails; the message is Git's.
    """
    top = Path(_git(_existing(next(iter(files))), "rev-parse", "--show-toplevel")).resolve()
    if _git(top, "branch", "--list", branch):
        raise InputError(f"{top}: there is a branch {branch} already; delete it, or continue on it")
    parent = _git(top, "rev-parse", "HEAD^{commit}")
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        _git(top, "read-tree", parent, environment=index)
        for path, text in files.items():
            blob = _git(top, "hash-object", "-w", "--stdin", text=text)
            file_path = path.parent.resolve() / path.name  # the link itself, not its target
            entry = f"100644,{blob},{file_path.relative_to(top)}"
            _git(top, "update-index", "--add", "--cacheinfo", entry, environment=index)
        tree = _git(top, "write-tree", environment=index)
    new_commit = _git(top, "commit-tree", tree, "-p", parent, "-F", "-", text=message)
    _git(top, "branch", branch, new_commit)
    return new_commit


def _existing(path: Path) -> Path:
    """The nearest existing folder above a file."""
    return next(folder for folder in path.absolute().parents if folder.is_dir())


def _git(folder: Path, *arguments: str, text: str = "", environment: Mapping[str, str] | None = None) -> str:
    # In a Git hook these are set to the hook's repository, work tree and index.
    outside = {k: v for k, v in os.environ.items() if k not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            env={**outside, **(environment or {})},
        )
    except FileNotFoundError as error:
        raise UnderstudyError("git: not installed here") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        kind = InputError if error.returncode == 128 else UnderstudyError
        raise kind(f"{folder}: git {arguments[0]}: {lines[-1]}") from error
    return done.stdout.strip()
