"""The printed profiles of a run's trainings: the parts of a step's time, side by side."""

from collections.abc import Mapping

from rich.table import Table

from understudy.train.profile import KINDS, Profile

MILLISECONDS = 1e3


def profile_table(profiles: Mapping[str, Profile]) -> Table:
    """A column for each training, by the trained model's role; a row for each kind of time that is not 0 in all."""
    table = Table(title="where a step's time went", title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for role in profiles:
        table.add_column(role, justify="right", no_wrap=True)
    columns = profiles.values()
    table.add_row("a step", *(f"{profile['seconds'] * MILLISECONDS:,.1f} ms" for profile in columns))
    for kind in KINDS:
        shares = [profile["kinds"][kind] / profile["recorded_seconds"] for profile in columns]
        if any(shares):
            table.add_row(f"  {kind}", *(f"{share:.1%}" if share else "" for share in shares))
    table.add_row("targets a second", *(f"{profile['targets_per_second']:,.0f}" for profile in columns))
    table.add_row("MFU", *("unknown" if (mfu := profile["mfu"]) is None else f"{mfu:.1%}" for profile in columns))
    return table
