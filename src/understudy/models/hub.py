"""Download of single files of a hub repository at a revision, through the hub's cache."""

from pathlib import Path

from understudy.errors import InputError

FOLDER = "a relative path starts at the recipe's folder"


class Unreachable(InputError):
    """The hub cannot be reached."""


def hub_file(repository: str, name: str, revision: str | None, key_path: str) -> Path | None:
    """The file's path in the cache, downloaded if it is missing; None if the repository has no such file.

    Args:
        repository: owner/name.
        name: the file's path in it.
        revision: a commit, tag or branch; None for the main branch.
        key_path: the id's path in the recipe, for messages.

    Raises:
        Unreachable: no network.
        InputError: no such repository or revision, gated, or refused.
    """
    from huggingface_hub import errors, hf_hub_download
    from huggingface_hub.utils.logging import get_logger

    # Without a network each retry would log two lines before the error below, which names the key of the recipe.
    get_logger("huggingface_hub.utils._http").setLevel("ERROR")
    prefix = f"{key_path}: {repository}"
    try:
        return Path(hf_hub_download(repository, name, revision=revision))
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise Unreachable(
            f"{prefix}: there is no such folder, and if it is a hub id, the hub cannot be reached and {name} is not in "
            f"the cache. Connect to the network, correct the path ({FOLDER}), or give the folder of a copy."
        ) from error
    except errors.EntryNotFoundError:
        return None
    except (errors.HFValidationError, errors.HfHubHTTPError) as error:
        raise InputError(f"{prefix}{_refusal(error, name, revision)}") from error


def _refusal(error: Exception, name: str, revision: str | None) -> str:
    """The hub's refusal and its fix. GatedRepoError comes first: it is a subclass of RepositoryNotFoundError."""
    from huggingface_hub import errors

    match error:
        case errors.HFValidationError():
            return f" is neither a folder here nor a hub id (owner/name). Correct it; {FOLDER}."
        case errors.GatedRepoError():
            return " is gated. Ask for access on its page on the hub, then run: hf auth login (or set HF_TOKEN)."
        case errors.RepositoryNotFoundError():
            return (
                ": there is no such folder, and the hub knows no such repository, or does not show it to you (401). "
                f"Correct it; {FOLDER}. For a private repository run: hf auth login (or set HF_TOKEN)."
            )
        case errors.RevisionNotFoundError():
            return f" has no revision {revision}. Give one of its commits, tags or branches."
    reason = str(error).partition("\n")[0]
    return f": the hub refused {name} ({reason}). Check HF_TOKEN and the network, then run again."
