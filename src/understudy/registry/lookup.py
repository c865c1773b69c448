"""What the registry says, asked as cheaply as it can be.

A server is asked over REST. The local database is asked through MLflow, which takes seconds to import; the answers
are remembered beside it and count while the file is the same (SQLite counts its changes in the file's header).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.registry import rest
from understudy.registry.server import connect, database, translated
from understudy.store.files import read_json, write_json

if TYPE_CHECKING:
    from mlflow import MlflowClient

HEADER = 100  # bytes; the SQLite file format, section 1.3: the change counter is at 24


def aliases(uri: str, name: str) -> dict[str, str]:
    """The aliases of a registered model and the versions they point to; none when there is no such model.

    Raises:
        UnderstudyError: the registry cannot be asked.
    """
    if rest.is_spoken_by(uri):
        found = rest.get(uri, "registered-models/get", name=name)
        given = found["registered_model"].get("aliases", []) if found else []
        return {alias["alias"]: str(alias["version"]) for alias in given}

    def ask(client: "MlflowClient") -> dict[str, str]:
        return {alias: str(version) for alias, version in client.get_registered_model(name).aliases.items()}

    return _remembered(uri, f"aliases of {name}", ask) or {}


def version_tags(uri: str, name: str, version: str) -> dict[str, str] | None:
    """A version's tags; None when there is no such version.

    Raises:
        UnderstudyError: the registry cannot be asked.
    """
    if rest.is_spoken_by(uri):
        found = rest.get(uri, "model-versions/get", name=name, version=version)
        return _tags(found["model_version"]) if found else None
    return _remembered(uri, f"tags of {name}/{version}", lambda client: client.get_model_version(name, version).tags)


def run_tags(uri: str, run_id: str) -> dict[str, str] | None:
    """A run's tags; None when there is no such run.

    Raises:
        UnderstudyError: the server cannot be asked.
    """
    if rest.is_spoken_by(uri):
        found = rest.get(uri, "runs/get", run_id=run_id)
        return _tags(found["run"]["data"]) if found else None
    return _remembered(uri, f"tags of run {run_id}", lambda client: client.get_run(run_id).data.tags)


def _tags(answer: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in answer.get("tags", [])}


def _remembered(uri: str, question: str, ask: "Callable[[MlflowClient], dict[str, str]]") -> dict[str, str] | None:
    path = database(uri)
    if path is None:
        return _asked(uri, ask)
    if not path.exists():
        return None
    memory, state = path.with_name(f"{path.name}.answers.json"), _state(path)
    known = read_json(memory) or {}
    answers = known["answers"] if known.get("state") == state else {}
    if question not in answers:
        answers[question] = _asked(uri, ask)
        # The state from before the question: whatever was written since then makes the answer stale.
        write_json(memory, {"state": state, "answers": answers})
    answer: dict[str, str] | None = answers[question]
    return answer


def _asked(uri: str, ask: "Callable[[MlflowClient], dict[str, str]]") -> dict[str, str] | None:
    client = connect(uri)
    from mlflow.exceptions import MlflowException

    with translated(uri):
        try:
            return dict(ask(client))
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise


def _state(path: Path) -> list[Any]:
    """What changes whenever the database does: its identity, size, times and header, and those of its journals."""
    with path.open("rb") as stream:
        header = stream.read(HEADER).hex()
    files = [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))]
    stats = [file.stat() for file in files if file.exists()]
    return [header, *([stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns] for stat in stats)]
