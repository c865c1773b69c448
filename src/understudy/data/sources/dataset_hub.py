"""The files of a data set on the Hugging Face hub at a commit, in the hub's cache."""

import re
from pathlib import Path
from typing import Any

from understudy.data.sources.built_dataset import CARD, HIDDEN_CARD, patterns
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
    library()
    card = _download(path, revision, [CARD, INFOS])
    try:
        chosen, every = patterns(card, name) if name else [], patterns(card)
    except ValueError as error:
        raise InputError(f"data.source.path: {path}: the header of its {CARD} is damaged ({error}).") from error
    return _download(path, revision, [CARD, INFOS, *chosen, *every[:1]] if chosen else None)


def _download(path: str, revision: str, allowed: list[str] | None) -> Path:
    from huggingface_hub import errors, snapshot_download

    arguments: dict[str, Any] = {"repo_type": "dataset", "revision": revision, "allow_patterns": allowed}
    location = f"data.source.path: {path}"
    try:
        return Path(snapshot_download(path, ignore_patterns=[HIDDEN_CARD], **arguments))
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
    except (errors.HfHubHTTPError, OSError) as error:
        raise Unreachable(
            f"{location}: there is no such folder, and if it is a hub id, the hub cannot be reached and its files are "
            f"not in the cache. Connect to the network, correct the path ({FOLDER}), or give the folder of a copy."
        ) from error
