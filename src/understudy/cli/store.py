"""understudy store: inspect the shared volume, verify it, and free space in it."""

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.output import print_json, print_table, size, watched
from understudy.cli.settings import Settings
from understudy.errors import InputError, UnderstudyError, printable
from understudy.store.files import HEXADECIMAL
from understudy.store.runs import duration

if TYPE_CHECKING:
    from understudy.store import Run, Store
    from understudy.store.gc import Removal

app = typer.Typer(no_args_is_help=True, help="List, verify and clean up the store.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DAY = 86400.0


@app.command("ls")
def list_(
    ctx: typer.Context,
    runs: Annotated[bool, typer.Option("--runs", help="List pipeline runs instead of objects.")] = False,
    as_json: Json = False,
) -> None:
    """List the objects in the store, or its runs, the newest last."""
    store = ctx.obj.open_store()
    if runs:
        _list_runs([_run(run) for run in store.runs()], as_json)
    else:
        _list_objects(_objects(store), as_json)


@dataclass(frozen=True)
class ObjectRow:
    """A line of the list of objects."""

    digest: str
    kind: str
    steps: list[str]
    """The steps with this result."""
    at: float
    files: int
    size: int


@dataclass(frozen=True)
class RunRow:
    """A line of the list of runs."""

    run: str
    name: str
    state: str
    exit_code: int | None
    at: float
    detail: str
    tracking_uri: str


def _list_objects(rows: list[ObjectRow], as_json: bool) -> None:
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    cut = 12 if sys.stdout.isatty() else None
    lines = [
        [row.digest[:cut], row.kind, ", ".join(row.steps), _date(row.at), str(row.files), size(row.size)]
        for row in rows
    ]
    print_table(("digest", "kind", "made by", "made at", "files", "size"), lines, right=("files", "size"))


def _list_runs(rows: list[RunRow], as_json: bool) -> None:
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    lines = [[row.run, row.name, row.state, _date(row.at), row.detail] for row in rows]
    print_table(("run", "recipe", "state", "started", "steps"), lines)


def _objects(store: "Store") -> list[ObjectRow]:
    steps: dict[str, set[str]] = {}
    for cached in store.step_cache:
        steps.setdefault(cached.digest, set()).add(cached.step)
    rows = []
    for digest in store.objects:
        manifest, created = store.objects.manifest(digest), store.objects.path(digest).stat().st_mtime
        made_by = sorted(steps.get(digest, ()))
        if manifest is None:
            rows.append(ObjectRow(digest, "damaged", made_by, created, 0, 0))
        else:
            rows.append(ObjectRow(digest, manifest.kind, made_by, created, len(manifest.files), manifest.size))
    return sorted(rows, key=lambda row: row.at)


def _run(run: "Run") -> RunRow:
    facts, states = run.facts, run.states()
    code = run.exit_code
    state = {None: "live" if run.is_live else "killed", 0: "done", 3: "rejected", 130: "stopped"}.get(code, "failed")
    steps = ", ".join(f"{state.step} {state.state}" for state in states)
    return RunRow(run.id, facts.name, state, code, facts.started, steps, facts.tracking_uri)


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@app.command()
def show(
    ctx: typer.Context,
    digest: Annotated[str, typer.Argument(help="The object's digest, or its first characters.")],
    as_json: Json = False,
) -> None:
    """Show an object: its path, its files, its origin."""
    store = ctx.obj.open_store()
    digest = store.objects.resolve(digest)
    manifest = store.objects.manifest(digest)
    if manifest is None:
        raise UnderstudyError(f"{store.objects.path(digest)}: damaged; understudy store verify {digest[:12]} says how")
    steps = [cached for cached in store.step_cache if cached.digest == digest]
    if as_json:
        files = [{"path": path, "size": count, "sha256": value} for path, count, value in manifest.files]
        cached_steps = [{"step": step.step, "key": step.key, "seconds": step.seconds, "at": step.at} for step in steps]
        about = {"digest": digest, "kind": manifest.kind, "path": str(store.objects.path(digest)), "files": files}
        print_json({**about, "inputs": dict(manifest.inputs), "facts": dict(manifest.facts), "made_by": cached_steps})
        return
    made_by = [f"{step.step} in {duration(step.seconds)}, {_date(step.at)}" for step in steps]
    print(f"digest   {digest}\nkind     {manifest.kind}\npath     {store.objects.path(digest)}")
    print(f"made by  {'; '.join(made_by) or 'no cached step'}")
    for name, value in manifest.inputs.items():
        print(f"input    {printable(name)} {printable(value)}")
    for name, value in manifest.facts.items():
        print(f"fact     {printable(name)} {printable(str(value))}")
    print()
    cut = 12 if sys.stdout.isatty() else None
    print_table(("file", "size", "sha256"), [[n, size(s), d[:cut]] for n, s, d in manifest.files], right=("size",))


@app.command()
def verify(
    ctx: typer.Context,
    digests: Annotated[list[str] | None, typer.Argument(help="Objects to read; all of them without any.")] = None,
) -> None:
    """Read every byte of the objects and name changed and missing files."""
    settings: Settings = ctx.obj
    store = settings.open_store()
    selected = [store.objects.resolve(digest) for digest in digests or ()] or list(store.objects)
    progress = watched(selected, len(selected), "reading")
    problems = [problem for digest in progress for problem in store.objects.damage(digest, thorough=True)]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise UnderstudyError(f"the store is damaged; the next run that needs these makes them again\n{listed}")
    if not settings.quiet:
        print(f"{len(selected)} {'object' if len(selected) == 1 else 'objects'}, all bytes verified, no damage")


@app.command()
def migrate(ctx: typer.Context) -> None:
    """Bring a store that an older understudy made to this version, in place. Everything in it is kept."""
    from understudy.store import version

    settings: Settings = ctx.obj
    settings.require_store()
    done = version.migrate(settings.store_folder.absolute())
    if not settings.quiet:
        print(f"{settings.store_folder}: {'now' if done else 'already'} version {version.VERSION}")


Digests = Annotated[list[str], typer.Argument(help="Objects' digests, or their first characters.")]


@app.command()
def push(ctx: typer.Context, digests: Digests, to: Annotated[str, typer.Option(help="s3://BUCKET/PREFIX")]) -> None:
    """Copy objects into a bucket; an interrupted copy is resumed."""
    from understudy.store import transfer

    store = ctx.obj.open_store()
    for digest in [store.objects.resolve(prefix) for prefix in digests]:
        bytes_sent = transfer.push(store, digest, to, lambda name: print(f"  {name}", file=sys.stderr))
        print(f"{digest}: {size(bytes_sent)} sent")


@app.command()
def pull(
    ctx: typer.Context,
    digests: Annotated[list[str], typer.Argument(help="Whole digests.")],
    from_: Annotated[str, typer.Option("--from", help="s3://BUCKET/PREFIX")],
) -> None:
    """Copy objects out of a bucket into this store, which is made when it is not there."""
    from understudy.store import Store, transfer

    store = Store(ctx.obj.store_folder)
    for digest in digests:
        if not HEXADECIMAL.fullmatch(digest):
            raise InputError(f"{digest}: is not a complete digest; understudy store show prints it where the object is")
        fetched = transfer.pull(store, digest, from_, lambda name: print(f"  {name}", file=sys.stderr))
        print(f"{digest}: {size(fetched)} fetched")


@app.command()
def gc(
    ctx: typer.Context,
    forget_after: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Forget finished steps and runs unused for so long.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
) -> None:
    """Remove objects that no cached step, registered model or live run can reach; lists them first."""
    from understudy.registry.champion import needed_digests
    from understudy.store.gc import collect, plan

    settings: Settings = ctx.obj
    store = settings.open_store()
    try:
        registered = needed_digests(settings.tracking_uri, settings.home, store.servers)
    except UnderstudyError as error:
        raise UnderstudyError(
            f"nothing was removed: the models that the registry needs are unknown. {error}"
        ) from error
    hidden = {digest: files for digest, files in store.registered.items() if digest not in registered}
    registered = registered | hidden.keys()
    _print_hidden(hidden)
    removals = plan(store, registered, None if forget_after is None else forget_after * DAY)
    if not removals:
        print("nothing to remove: all of it is in the step cache, registered, in use, or younger than an hour")
        return
    _print_plan(store.folder, removals)
    if yes or (sys.stdin.isatty() and typer.confirm("Remove all this?")):
        print(f"{size(collect(store, removals, registered))} freed")
    else:
        print("nothing was removed; use --yes to remove it")


def _print_hidden(hidden: Mapping[str, list[Path]]) -> None:
    """Print the kept digests: a deleted version looks the same as one that this account may not see."""
    if hidden:
        print(
            f"kept: models registered at a server that shows no version of them now ({len(hidden)}). "
            "Once such a version is deleted, remove the file that records it:"
        )
    for files in hidden.values():
        for file in files:
            print(f"  {file}")


def _print_plan(folder: Path, removals: "list[Removal]") -> None:
    rows = [[str(r.path.relative_to(folder)), size(r.size), r.reason] for r in removals]
    total = ["in all", size(sum(removal.size for removal in removals)), ""]
    print_table(("what", "size", "why"), [*rows, total], right=("size",))
