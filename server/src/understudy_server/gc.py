"""Garbage collection of deleted runs, logged models and experiments in MLflow that no model version needs.

`mlflow gc` checks neither the registry nor this server's rules: it removes the run, the logged model and the files of
a champion whose run was deleted before the promotion, or by an admin after it. It also deletes files through the
server, which serves no such request. So this module works on the database and the bucket, as MLflow's command does,
and checks the versions in between: `python -m understudy_server.gc --days 30 --yes`.
"""

import argparse
import os
import posixpath
import sys
import time
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NamedTuple

from mlflow.entities import LifecycleStage, ViewType
from mlflow.exceptions import MlflowException
from mlflow.server import handlers
from mlflow.server.constants import BACKEND_STORE_URI_ENV_VAR
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from understudy.errors import InputError
from understudy_server import retention_table, schema
from understudy_server.promotion import listings, pages
from understudy_server.retention import ROOT, Resource, requirements

DAY = 86_400_000  # milliseconds
CLOCKS = 60_000
"""Clock skew allowed between two servers that create versions, in milliseconds."""


class Deleted(NamedTuple):
    """Something that was deleted long enough ago, and the address of its files."""

    resource: Resource
    files: str


class Trash:
    """The deleted resources in a server's database, their files, and the versions that still need them.

    Args:
        database: the address of the server's database.
        files: the address of the server's files.

    Raises:
        InputError: the database has another schema than this MLflow's.
    """

    def __init__(self, database: str, files: str) -> None:
        schema.check(database)
        os.environ[BACKEND_STORE_URI_ENV_VAR] = database  # read by MLflow's handlers
        self._store = handlers._get_tracking_store()
        self._files = get_artifact_repository(files)
        retention_table.create_table(self._store.engine)
        self._dependents: dict[Resource, str] = {}
        self._newest = 0  # creation time of the newest version seen, in milliseconds

    def older_than(self, days: float) -> Iterator[Deleted]:
        """Things deleted so many days ago: logged models and runs, then the experiments left without runs."""
        age = int(days * DAY)
        for name in self._store._get_deleted_logged_models(older_than=age):
            # MLflow returns a deleted logged model only on request.
            entity = self._store.get_logged_model(name, allow_deleted=True)
            yield Deleted(("logged-model", name), str(entity.artifact_location))
        for name in self._store._get_deleted_runs(older_than=age):
            yield Deleted(("run", name), str(self._store.get_run(name).info.artifact_uri))
        before = f"last_update_time < {int(time.time() * 1000) - age}"
        deleted = pages(lambda token: self._store.search_experiments(ViewType.DELETED_ONLY, 1000, before, None, token))
        for entity in list(deleted):  # the whole list first: removals would shift the next page
            name = str(entity.experiment_id)
            if not self._store.search_runs([name], "", ViewType.ALL, max_results=1):
                yield Deleted(("experiment", name), str(entity.artifact_location))

    def needed_by(self, deleted: Deleted) -> str:
        """A description of the version that needs it; empty if none does."""
        self._collect_requirements()
        kind, name = deleted.resource
        return retention_table.needed_by(self._store.engine, kind, [name]) or self._dependents.get(deleted.resource, "")

    def is_due(self, deleted: Deleted, days: float) -> bool:
        """Whether it is still due for removal: the list may be hours old when its turn comes."""
        kind, name = deleted.resource
        if kind == "experiment":
            return bool(self._store.get_experiment(name).lifecycle_stage == LifecycleStage.DELETED)
        listed = self._store._get_deleted_runs if kind == "run" else self._store._get_deleted_logged_models
        return name in listed(older_than=int(days * DAY))

    def _collect_requirements(self) -> None:
        """Collect the requirements of new versions only: a version's source never changes."""
        since = self._newest - CLOCKS
        for listing in listings():
            for version in takewhile(lambda version: version.creation_timestamp >= since, listing):
                self._newest = max(self._newest, version.creation_timestamp)
                self._dependents |= dict.fromkeys(requirements(version), f"version {version.version} of {version.name}")

    def remove(self, deleted: Deleted) -> None:
        """Remove its files, then its rows in the database: after a kill in between, the next call finishes."""
        kind, name = deleted.resource
        path = posixpath.normpath(deleted.files.removeprefix(ROOT)).strip("/")
        if deleted.files.startswith(ROOT) and name in path.split("/"):
            self._files.delete_artifacts(path)
        removals = {
            "run": self._store._hard_delete_run,
            "logged-model": self._store._hard_delete_logged_model,
            "experiment": self._store._hard_delete_experiment,
        }
        removals[kind](name)


def collect(trash: Trash, days: float, yes: bool) -> Iterator[str]:
    """Remove the resources that were deleted so many days ago and are not needed; a line about each.

    Args:
        trash: the server's deleted resources.
        days: since the deletion.
        yes: remove; otherwise only list.
    """
    for deleted in trash.older_than(days):
        description = " ".join(deleted.resource).replace("-", " ", 1)
        dependent = trash.needed_by(deleted)
        if dependent:
            yield f"kept: {description}; {dependent}, needs it"
            continue
        if not trash.is_due(deleted, days):
            yield f"kept: {description}; it was restored meanwhile"
            continue
        if yes:
            trash.remove(deleted)
        yield f"{'removed' if yes else 'would go'}: {description}"


def main() -> None:
    """Collect the garbage of the server in the environment's settings."""
    parser = argparse.ArgumentParser(description="Permanently remove deleted runs and versions that no version needs.")
    parser.add_argument("--days", type=float, required=True, help="since the deletion; 7 or more")
    parser.add_argument("--yes", action="store_true", help="remove them; without it they are only listed")
    arguments: Any = parser.parse_args()
    try:
        if arguments.days < 7:
            raise InputError("--days: give 7 or more, so that deletions by mistake can be undone")
        trash = Trash(_setting("MLFLOW_BACKEND_STORE_URI"), _setting("MLFLOW_ARTIFACTS_DESTINATION"))
        for line in collect(trash, arguments.days, arguments.yes):
            print(line, flush=True)
    except (InputError, MlflowException) as error:
        sys.exit(f"nothing more was removed: {error}")


def _setting(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise InputError(f"{name} is not set; docs/operating/mlflow-server.md says which Secret has it")
    return value


if __name__ == "__main__":
    main()
