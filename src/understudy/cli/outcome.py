"""What a run came to, as a table for the reader."""

import math
from typing import Any

from rich.console import Console
from rich.table import Table


def results(measures: dict[str, Any]) -> Table:
    """Teacher, student, control and champion side by side."""
    metric = measures["gate_metric"]
    title = f"{metric.replace('_', ' ')} on {measures['examples']} test examples"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("model")
    for heading in (f"{metric} [{measures['confidence']:.0%}]", "parameters", "size", "latency", "throughput"):
        table.add_column(heading, justify="right", no_wrap=True)
    for role, model in measures["models"].items():
        value, interval = model["metrics"].get(metric), model["intervals"].get(metric)
        measured = "not measured" if value is None else f"{value:.4f}"
        spread = f" [{interval[0]:.4f}, {interval[1]:.4f}]" if interval else ""
        latency = model["latency"]
        table.add_row(
            role,
            measured + spread.replace("[", "\\["),
            f"{model['parameters']:,}",
            _bytes(model["bytes"]),
            f"{latency['median_ms']:.2f} ms",
            f"{latency['throughput_per_s']:,.0f}/s",
        )
    return table


def _bytes(size: float) -> str:
    power = min(3, int(math.log(max(size, 1), 1000)))
    return f"{size / 1000**power:.{1 if power else 0}f} {('B', 'kB', 'MB', 'GB')[power]}"


def show_verdict(console: Console, verdict: dict[str, Any]) -> None:
    """The gate's word, rule by rule."""
    console.print(
        "approved" if verdict["approved"] else "rejected", style="bold green" if verdict["approved"] else "bold red"
    )
    for rule in verdict["rules"]:
        mark = "[green]pass[/]" if rule["passed"] else "[red]FAIL[/]"
        console.print(f"  {mark}  {rule['rule']}: ", end="", highlight=False)
        console.print(rule["detail"], markup=False, highlight=False, soft_wrap=True)
