"""understudy backup: snapshots of the store and of the registry in a bucket, and their restoration."""

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.output import print_json, print_table, size
from understudy.cli.settings import Settings
from understudy.errors import InputError, UnderstudyError

if TYPE_CHECKING:
    from understudy.store.bucket import Bucket
    from understudy.store.vault import Snapshot, Vault

app = typer.Typer(no_args_is_help=True, help="Back up the store and the registry, and restore them.")
DAY = 86400.0
To = Annotated[str, typer.Argument(metavar="VAULT", help="Where backups are: s3://BUCKET/PREFIX, or file:///FOLDER.")]
Name = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Its name; backup ls lists them.")]
ForgetAfter = Annotated[
    float | None, typer.Option(min=1, metavar="DAYS", help="Then remove older snapshots, but never the newest.")
]
Dump = Annotated[
    Path | None,
    typer.Option(help="A server's database by pg_dump; without it, the registry of the home."),
]
Files = Annotated[
    str | None, typer.Option(envvar="MLFLOW_ARTIFACTS_DESTINATION", help="Location of the server's files; with --dump.")
]


@app.command()
def store(ctx: typer.Context, vault: To, forget_after: ForgetAfter = None) -> None:
    """Back up the store: its objects, finished steps and runs, without work in progress. Runs may go on."""
    from understudy.store import backup

    opened = ctx.obj.open_store()
    _back_up(vault, lambda to, report: backup.back_up(opened, to, report), forget_after)


@app.command()
def registry(
    ctx: typer.Context, vault: To, dump: Dump = None, files: Files = None, forget_after: ForgetAfter = None
) -> None:
    """Back up the registry: its database and its files. The server may go on."""
    from understudy.registry import backup

    files_location = _files(ctx.obj, dump, files)
    kind = "postgresql" if dump else "sqlite"
    with nullcontext(dump) if dump else backup.sqlite_dump(_database(ctx.obj)) as copy:
        _back_up(vault, lambda to, report: backup.back_up(to, copy, kind, files_location, report), forget_after)


Tell = Callable[[str], None]


def _back_up(url: str, back_up: "Callable[[Vault, Tell], Snapshot]", forget_after: float | None) -> None:
    from understudy.store.backup import DAMAGED
    from understudy.store.vault import Vault

    vault, began, messages = Vault(url), time.monotonic(), list[str]()

    def report(line: str) -> None:
        messages.append(line)
        print(line, file=sys.stderr)

    snapshot = back_up(vault, report)
    seconds = time.monotonic() - began
    print(f"{_summary(snapshot)}, {size(vault.sent)} of it sent, in {seconds:.1f} s")
    if damaged := sum(line.startswith(DAMAGED) for line in messages):
        raise UnderstudyError(
            f"{damaged} damaged objects are not in this snapshot, and perhaps in an older one: none was removed; "
            "understudy store verify names them, and a run makes them again"
        )
    if forget_after is not None:
        forgotten = vault.forget(snapshot.kind, snapshot.made - forget_after * DAY)
        print(f"{forgotten} older {'snapshot' if forgotten == 1 else 'snapshots'} removed")


def _summary(snapshot: "Snapshot") -> str:
    return f"{snapshot.name}: {len(snapshot.entries)} files, {size(snapshot.size)}"


@app.command("ls")
def list_(vault: To, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the snapshots of a vault, by kind, the newest last."""
    from understudy.store.vault import Vault

    opened = Vault(vault)
    snapshots = [opened.snapshot(name) for name in opened.names()]
    if as_json:
        print_json([{"name": it.name, "kind": it.kind, "made": it.made, "size": it.size} for it in snapshots])
        return
    rows = [[it.name, it.kind, str(len(it.entries)), size(it.size)] for it in snapshots]
    print_table(("snapshot", "kind", "files", "size"), rows, right=("files", "size"))


@app.command()
def verify(vault: To, snapshot: Name) -> None:
    """Read every byte of a snapshot in the vault."""
    from understudy.store.vault import Vault

    opened = Vault(vault)
    stored = opened.snapshot(snapshot)
    opened.verify(stored)
    print(f"{_summary(stored)}, all bytes verified, no damage")


@app.command()
def restore(ctx: typer.Context, vault: To, snapshot: Name, dump: Dump = None, files: Files = None) -> None:
    """Restore a snapshot into an empty place: a store into --home, a registry there too, or into --dump and --files."""
    from understudy.registry import backup as registries
    from understudy.store import backup as stores
    from understudy.store.vault import Vault

    opened, began = Vault(vault), time.monotonic()
    stored = opened.snapshot(snapshot)
    if stored.kind == stores.KIND:
        location = ctx.obj.store_folder.absolute()
        stores.restore(opened, stored, location)
    else:
        if (stored.version == "postgresql") != (dump is not None):
            raise InputError(
                f"{stored.name}: is of {stored.version}; give --dump FILE for postgresql, and for no other"
            )
        location = dump or _database(ctx.obj)
        registries.restore(opened, stored, location, _files(ctx.obj, dump, files))
    seconds = time.monotonic() - began
    print(f"{_summary(stored)}, verified and restored in {seconds:.1f} s: {location}")
    if dump:
        print(f"now: pg_restore --no-owner --exit-on-error --single-transaction --dbname=EMPTY_DATABASE {dump}")


def _database(settings: Settings) -> Path:
    """The file of the local registry."""
    from understudy.registry.server import database, public_uri

    path = database(settings.tracking_uri)
    if path is None:
        raise InputError(
            f"{public_uri(settings.tracking_uri)}: a server's registry is backed up from a dump of its database and "
            "from its bucket; give --dump and --files"
        )
    return path


def _files(settings: Settings, dump: Path | None, location: str | None) -> "Bucket":
    """The location of the registry's files."""
    from understudy.registry.relocation import location_beside
    from understudy.store.bucket import Bucket

    if dump is None:
        return Bucket(location_beside(_database(settings)))
    if not location:
        raise InputError("--files: give the location of the server's files, its MLFLOW_ARTIFACTS_DESTINATION")
    return Bucket(location if "://" in location else Path(location).absolute().as_uri())
