"""Tables on a terminal, plain lines otherwise, JSON for machines."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

from understudy.errors import printable

Item = TypeVar("Item")
STYLES = {"ok": "green", "problem": "bold red", "live": "cyan", "done": "green", "failed": "bold red"}


def print_error(message: str) -> None:
    """Print an error on stderr."""
    from rich.console import Console
    from rich.text import Text

    message = "\n".join(map(printable, message.split("\n")))  # it may contain names that others chose
    if sys.stderr.isatty():
        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    else:
        print(f"error: {message}", file=sys.stderr)


def watched(items: Iterable[Item], total: int, description: str) -> Iterable[Item]:
    """The same items; on a terminal, with a progress bar on stderr."""
    if not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description, total=total, console=Console(stderr=True), transient=True)


def print_json(value: object) -> None:
    """Print one JSON value on stdout."""
    print(json.dumps(value, indent=1, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table on stdout.

    Args:
        columns: the headings.
        rows: as many texts each; unprintable characters, such as line breaks, are escaped.
        right: the headings of the columns that are aligned to the right.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        for row in (columns, *rows):
            cells = [
                cell.rjust(width) if name in right else cell.ljust(width)
                for name, cell, width in zip(columns, row, widths, strict=True)
            ]
            print("  ".join(cells).rstrip())
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    Console().print(table)


def size(count: float) -> str:
    """A number of bytes as text: 999 B, 1.2 MB (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
