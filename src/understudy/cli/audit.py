"""understudy audit: the registry's audit log, printed and verified."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.settings import Settings
from understudy.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Read and check the audit of a registry's server.")


@app.command()
def export(ctx: typer.Context) -> None:
    """Print the audit as JSON lines, oldest first. Needs an admin's account."""
    for line in _lines(ctx.obj, None):
        print(line)


@app.command()
def verify(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="An exported audit; without one, the server's.")] = None,
    last: Annotated[str, typer.Option(help="A digest noted earlier, which must still be present.")] = "",
) -> None:
    """Check that no line was changed, removed or added."""
    from understudy.registry import audit

    chain = audit.verify(_lines(ctx.obj, file), last)
    if not ctx.obj.quiet:
        print(f"{chain.lines} lines, none changed or removed; the last digest is {chain.last}")


def _lines(settings: Settings, file: Path | None) -> Iterable[str]:
    from understudy.registry import audit

    if file is None:
        return audit.lines_of(settings.tracking_uri)
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as an audit ({error})") from error
