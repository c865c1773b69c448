"""The schema of the server's database: its current revision, the one that this MLflow requires, and the upgrade.

At startup MLflow silently upgrades a database if its version has an additional table or another schema of accounts;
otherwise it stops. The database must not change while servers of two versions run. So the server checks first and
refuses, and one Job upgrades: `python -m understudy_server.schema`.
"""

import os
import sys
from typing import NamedTuple

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from mlflow.exceptions import MlflowException
from mlflow.server.auth.db import utils as accounts_schema
from mlflow.store.db import utils as mlflow_schema
from sqlalchemy import Engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from understudy.errors import InputError, UnderstudyError
from understudy_server import audit_table, retention_table

DATABASE = "MLFLOW_BACKEND_STORE_URI"


class Chain(NamedTuple):
    """A group of tables that share a table with their revision."""

    description: str
    revision_table: str
    """The table with the revision."""
    first_table: str
    """A table that exists from the first revision on."""
    scripts: Config


class Revision(NamedTuple):
    """A database's revision in a chain: None if it has none of the tables, "" if it is older than all revisions."""

    chain: Chain
    current: str | None
    required: str

    @property
    def is_old(self) -> bool:
        """Whether the tables exist and are those of an older version."""
        return self.current is not None and self.current != self.required


CHAINS = (
    Chain("runs and models", "alembic_version", "experiments", mlflow_schema._get_alembic_config("")),
    Chain("accounts", "alembic_version_auth", "users", accounts_schema._get_alembic_config("")),
)


def revisions(engine: Engine) -> list[Revision]:
    """A database's revision in each chain.

    Raises:
        InputError: a newer version has upgraded it.
    """
    tables = set(inspect(engine).get_table_names())
    return [_revision(engine, chain, chain.first_table in tables) for chain in CHAINS]


def _revision(engine: Engine, chain: Chain, exists: bool) -> Revision:
    scripts = ScriptDirectory.from_config(chain.scripts)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": chain.revision_table})
        current = context.get_current_revision()
    if current:
        try:
            scripts.get_revision(current)
        except CommandError as error:
            raise InputError(
                f"{DATABASE}: the schema of {chain.description} is {current}, which this MLflow does not know: a newer "
                "one has upgraded this database. Use its image, or restore the backup that was made before"
            ) from error
    return Revision(chain, current or ("" if exists else None), str(scripts.get_current_head()))


def check(uri: str) -> None:
    """Refuse a database of another schema. The server itself fills an empty one.

    Raises:
        InputError: it has to be upgraded first, or is too new.
    """
    engine = mlflow_schema.create_sqlalchemy_engine_with_retry(uri)
    try:
        outdated = [revision for revision in revisions(engine) if revision.is_old]
    finally:
        engine.dispose()
    if outdated:
        states = [f"{it.chain.description}: {it.current or 'none'}, needed is {it.required}" for it in outdated]
        raise InputError(
            f"{DATABASE}: the database has the schema of an older MLflow ({'; '.join(states)}). The Job mlflow-upgrade "
            "(manifests/components/operations) upgrades it; docs/operating/operations.md has the order, and the backup "
            "before"
        )


def upgrade(uri: str) -> list[str]:
    """Upgrade a database to this MLflow's schema; an empty one gets its tables. Idempotent.

    Returns:
        A line about each chain.

    Raises:
        InputError: a newer version has upgraded it.
    """
    engine = mlflow_schema.create_sqlalchemy_engine_with_retry(uri)
    try:
        before = revisions(engine)
        if not inspect(engine).has_table(CHAINS[0].first_table):
            mlflow_schema._initialize_tables(engine)
        else:
            mlflow_schema._upgrade_db(engine)
        accounts_schema.migrate_if_needed(engine, "head")
        audit_table.create_table(engine)
        retention_table.create_table(engine)
        return [_line(was, now) for was, now in zip(before, revisions(engine), strict=True)]
    finally:
        engine.dispose()


def _line(was: Revision, now: Revision) -> str:
    if was.current == now.current:
        return f"{was.chain.description}: {now.current} already"
    return f"{was.chain.description}: {was.current or 'none'} -> {now.current}"


def main() -> None:
    """Upgrade the database that the environment names."""
    uri = os.environ.get(DATABASE)
    try:
        if not uri:
            raise InputError(f"{DATABASE} is not set; docs/operating/mlflow-server.md says which Secret has it")
        for line in upgrade(uri):
            print(line, flush=True)
    except (UnderstudyError, MlflowException) as error:
        sys.exit(f"the database was not upgraded: {error}")
    except SQLAlchemyError as error:  # its message may contain the address with the password
        sys.exit(f"the database was not upgraded: {type(error).__name__} of {type(error.__cause__).__name__}")


if __name__ == "__main__":
    main()
