"""The files of a data set on the Hugging Face hub at a commit, in the hub's cache."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase as fnmatch
from glob import escape
from pathlib import Path

from understudy.data.sources.built_dataset import CARD, patterns
from understudy.data.sources.dataset_parts import library
from understudy.errors import InputError
from understudy.models.hub import FOLDER, Unreachable

COMMIT = re.compile(r"[0-9a-f]{40}")
ID = re.compile(r"[\w.-]+/[\w.-]+")
INFOS = "dataset_infos.json"


def is_hub_id(path: str) -> bool:
    """Whether a path is a hub id, and no file or folder here."""
    return bool(ID.fullmatch(path)) and not path.startswith(".") and not Path(path).exists()


def commit(path: str, revision: str | None) -> str:
    """The commit of a hub id, which is the identity of its contents.

    Raises:
        InputError: there is none, or a branch or tag, which may move.
    """
    if revision is None or not COMMIT.fullmatch(revision):
        wrong = "is required" if revision is None else f"is {revision}, and has to be a commit, since others move"
        raise InputError(
            f"data.source.revision: {wrong}: {path} is no folder here ({FOLDER}), and so a hub id. Give one of its "
            "commits, of 40 hexadecimal digits."
        )
    return revision


def snapshot(path: str, revision: str, name: str | None) -> Path:
    """The folder of a commit's files. Those of other configurations are not downloaded if a README.md says which.

    The library finds out the format from the first configuration, whose files are downloaded, too.

    Args:
        path: a hub id.
        revision: a commit.
        name: the configuration; None for the default one.

    Raises:
        Unreachable: no network.
        InputError: there is no such data set or commit, or access is denied.
    """
    from huggingface_hub.utils.logging import get_logger

    library()
    get_logger("huggingface_hub.utils._http").setLevel("ERROR")  # each retry would log two lines
    names = _names(path, revision)
    card = _download(path, revision, [name for name in names if name in (CARD, INFOS)])
    wanted = _wanted(path, card, name)
    visible = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    chosen = [name for name in visible if wanted is None or any(fnmatch(name, pattern) for pattern in wanted)]
    if not chosen:
        raise InputError(f"data.source.path: {path} has no files at the commit {revision}.")
    return _download(path, revision, chosen)


def _wanted(path: str, card: Path, name: str | None) -> list[str] | None:
    """Patterns of the files that a configuration needs; None for all files."""
    try:
        chosen, every = patterns(card, name) if name else [], patterns(card)
    except ValueError as error:
        raise InputError(f"data.source.path: {path}: the header of its {CARD} is damaged ({error}).") from error
    return [CARD, INFOS, *chosen, *every[:1]] if chosen else None


def _names(path: str, revision: str) -> list[str]:
    """The names of all files, so that an incomplete copy in the cache is not taken for the data set."""
    from huggingface_hub import HfApi

    with _input_errors(path, revision):
        return [*HfApi().list_repo_files(path, repo_type="dataset", revision=revision)]


def _download(path: str, revision: str, names: list[str]) -> Path:
    """The folder with these files, which are downloaded if they are not in the cache."""
    from huggingface_hub import snapshot_download

    with _input_errors(path, revision):
        folder = Path(
            snapshot_download(
                path, repo_type="dataset", revision=revision, allow_patterns=[*map(escape, names)] or [CARD]
            )
        )
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise FileNotFoundError(missing[0])
        return folder


@contextmanager
def _input_errors(path: str, revision: str) -> Iterator[None]:
    """Raise the hub's refusals as InputError at the path, within the context."""
    from huggingface_hub import errors
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # the module that it uses, httpx or httpx2

    location = f"data.source.path: {path}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise InputError(
            f"{location} is gated. Ask for access on its page on the hub, then run: hf auth login (or set HF_TOKEN)."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(f"data.source.revision: {path} has no commit {revision}.") from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"{location}: there is no such folder, and the hub has no such data set, or does not show it to you. "
            f"Correct it; {FOLDER}. For a private one run: hf auth login (or set HF_TOKEN)."
        ) from error
    except (httpx.HTTPError, OSError) as error:
        raise Unreachable(
            f"{location}: there is no such folder, and if it is a hub id, the hub cannot be reached and its files are "
            f"not in the cache. Connect to the network, correct the path ({FOLDER}), or give the folder of a copy."
        ) from error
