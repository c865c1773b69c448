"""understudy plan: memory, time and cost of a recipe's trainings, before anything runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.output import print_json
from understudy.cli.recipe import Overrides, RecipePath

if TYPE_CHECKING:
    from understudy.plan.estimate import Estimate
    from understudy.plan.job import Job

KindOfHardware = Annotated[str, typer.Option("--hardware", help="What each process has; a name in the table.")]
Table = Annotated[Path | None, typer.Option("--table", help="A table of hardware in the place of the one built in.")]
All = Annotated[bool, typer.Option("--all", help="Every other set of degrees for the same processes, too.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


def plan(
    recipe: RecipePath,
    overrides: Overrides = None,
    hardware: KindOfHardware = "H100",
    table: Table = None,
    every: All = False,
    as_json: AsJson = False,
) -> None:
    """Say what a recipe's trainings take: memory of a process, seconds of a step, hours and cost.

    Nothing is trained, read or downloaded, and no GPU is needed: the real loop runs on tensors without memory, on data
    imagined from the recipe. Exit codes: 0 every training fits, 1 one does not, 2 the recipe is wrong.
    """
    from understudy.cli.recipe import checked
    from understudy.plan import hardware as kinds
    from understudy.plan.job import jobs, planned

    known = kinds.table(table)
    if hardware not in known:
        raise typer.BadParameter(f"{hardware} is not in the table ({', '.join(known)})", param_hint="--hardware")
    written, _ = checked(recipe, overrides or (), elsewhere=True)
    found: list[tuple[Job, Estimate, list[Estimate]]] = []
    for job in jobs(written.recipe):
        own = planned(job, known[hardware])
        others = job.others(known[hardware]) if every else []
        found.append((job, own, others))
    if as_json:
        print_json(
            {
                job.name: {"plan": _machine(own), "others": [_machine(other) for other in others]}
                for job, own, others in found
            }
        )
    else:
        for job, own, others in found:
            _say(job, own, others, hardware, known[hardware].memory, known[hardware].price)
    raise typer.Exit(0 if all(own.fits for _, own, _ in found) else 1)


def _machine(own: "Estimate") -> dict[str, Any]:
    return {
        "degrees": own.degrees.model_dump(),
        "fits": own.fits,
        "memory_gib": own.memory,
        "peak_bytes": own.traced.peak.bytes,
        "peak_phase": own.traced.peak.phase,
        "kinds_bytes": own.traced.peak.kinds,
        "kept_bytes": own.traced.kept,
        "checkpoint_bytes": own.traced.state,
        "flops": own.traced.flops,
        "step_seconds": {
            "all": own.step,
            "compute": own.compute,
            "communication": own.communication,
            "bubble": own.bubble,
        },
    }


def _say(job: "Job", own: "Estimate", others: Sequence["Estimate"], hardware: str, memory: float, price: float) -> None:
    kinds = ", ".join(f"{kind} {size / 2**30:.2f}" for kind, size in own.traced.peak.kinds.items() if size > 2**23)
    typer.echo(f"{job.name}: {_degrees(own)} on {job.nodes} x {job.processes} {hardware}")
    verdict = "fits" if own.fits else "DOES NOT FIT"
    typer.echo(f"  memory    {own.memory:.2f} of {memory:.1f} GiB a process: {verdict}")
    typer.echo(f"            at most in {own.traced.peak.phase}, GiB: {kinds or 'nothing of weight'}")
    kept, state = own.traced.kept / 2**30, job.checkpoint(own) / 2**30
    typer.echo(f"            {kept:.2f} between steps; a checkpoint has {state:.2f} in all")
    typer.echo(
        f"  a step    {own.step:.3g} s: {own.compute:.3g} computing, {own.communication:.3g} communicating alone, "
        f"{own.bubble:.3g} waiting for other stages"
    )
    if job.steps:
        hours = own.hours(job.steps)
        cost = hours * job.nodes * job.processes * price
        typer.echo(f"  in all    {job.steps:,} steps: {hours:.2f} h, {cost:.2f} USD at {price:g} an hour and process")
    for place, other in enumerate(others):
        if place == 0:
            typer.echo("  other degrees, the fastest that fit first:")
        fits = "" if other.fits else "  does not fit"
        typer.echo(f"    {_degrees(other):<44} {other.memory:8.2f} GiB {other.step:9.3g} s a step{fits}")


def _degrees(own: "Estimate") -> str:
    parts = [f"{name} {size}" for name, size in own.degrees.model_dump().items() if name != "zero_stage" and size > 1]
    return " x ".join(parts) or "one process"
