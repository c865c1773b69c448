"""understudy plan: memory, time and cost of a recipe's trainings, before anything runs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.output import print_json
from understudy.cli.recipe import Overrides, RecipePath
from understudy.errors import InputError

if TYPE_CHECKING:
    from understudy.plan.estimate import Estimate
    from understudy.plan.hardware import Hardware
    from understudy.plan.job import Job
    from understudy.plan.ranking import Ranking

DEFAULT = "H100"
KindOfHardware = Annotated[
    str | None,
    typer.Option(
        "--hardware", help=f"What each process has; a name in the table. Default: the recipe's, or {DEFAULT}."
    ),
]
Table = Annotated[Path | None, typer.Option("--table", help="A table of hardware in the place of the one built in.")]
All = Annotated[bool, typer.Option("--all", help="Every other set of degrees for the same processes, too.")]
Write = Annotated[bool, typer.Option("--write", help="Put the best degrees into the recipe's file.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


@dataclass(frozen=True)
class Answer:
    """What is told of a training."""

    job: "Job"
    kind: str
    hardware: "Hardware"
    own: "Estimate"
    """As the recipe has it; the best, where the recipe leaves that to the plan, and with --write."""
    ranking: "Ranking | None"
    """If all were asked for."""


def plan(
    recipe: RecipePath,
    overrides: Overrides = None,
    hardware: KindOfHardware = None,
    table: Table = None,
    every: All = False,
    write: Write = False,
    as_json: AsJson = False,
) -> None:
    """Say what a recipe's trainings take: memory of a process, seconds of a step, hours and cost.

    Nothing is trained, read or downloaded, and no GPU is needed: the real loop runs on tensors without memory, on data
    imagined from the recipe. Exit codes: 0 every training fits, 1 one does not, 2 the recipe is wrong.
    """
    from understudy.cli.recipe import checked
    from understudy.plan import hardware as kinds
    from understudy.plan.job import jobs

    known = kinds.table(table)
    written, _ = checked(recipe, overrides or (), elsewhere=True)
    answers = [_answer(job, hardware, known, every=every, write=write) for job in jobs(written.recipe)]
    if as_json:
        print_json({answer.job.name: _machine(answer) for answer in answers})
    else:
        for answer in answers:
            _say(answer)
    if write:
        _write(recipe, answers)
    raise typer.Exit(0 if all(answer.own.fits for answer in answers) else 1)


def _answer(job: "Job", named: str | None, known: "dict[str, Hardware]", *, every: bool, write: bool) -> Answer:
    from understudy.plan.automatic import best_degrees
    from understudy.plan.ranking import estimated, ranking

    kind = named or job.hardware or DEFAULT
    if kind not in known:
        why = f"{kind} is not in the table ({', '.join(known)})"
        if named:
            raise typer.BadParameter(why, param_hint="--hardware")
        raise InputError(f"resources.{job.name}.hardware: {why}")
    place, degrees = job.place(known[kind]), job.degrees
    found = ranking(job.planned, place) if every or write or degrees is None else None
    if found and (write or degrees is None):
        degrees = best_degrees(job, known[kind], found)
    assert degrees is not None
    # What was ranked is there already, but for zero1 and zero2, which are not among the sets of degrees.
    ranked = {other.degrees: other for other in found.estimates} if found else {}
    own = ranked.get(degrees) or estimated(job.planned, degrees, place)
    return Answer(job, kind, known[kind], own, found if every else None)


def _write(path: Path, answers: Sequence[Answer]) -> None:
    """The degrees of each training in the recipe's file, and nothing else of it."""
    from understudy.plan.automatic import SECTIONS
    from understudy.recipe.edit import with_value

    text = path.read_text(encoding="utf-8")
    for answer in answers:
        section = SECTIONS[answer.job.name]
        value = answer.own.degrees.model_dump(exclude_defaults=True) or "single"
        changed = with_value(text, (section, "train", "strategy"), value)
        if changed is None:
            raise InputError(f"{path}: {section}.train.strategy cannot be changed alone; write {value} there yourself")
        text = changed
    path.write_text(text, encoding="utf-8")
    typer.echo(f"{path}: has these degrees now", err=True)


def _machine(answer: Answer) -> dict[str, Any]:
    found = answer.ranking
    others = [_estimate(other) for other in found.estimates if other.degrees != answer.own.degrees] if found else []
    refused = [{"degrees": other.model_dump(), "reason": why} for other, why in found.refused] if found else []
    return {"hardware": answer.kind, "plan": _estimate(answer.own), "others": others, "refused": refused}


def _estimate(own: "Estimate") -> dict[str, Any]:
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


def _say(answer: Answer) -> None:
    from understudy.plan.remedies import lacking

    job, own, hardware = answer.job, answer.own, answer.hardware
    kinds = ", ".join(f"{kind} {size / 2**30:.2f}" for kind, size in own.traced.peak.kinds.items() if size > 2**23)
    typer.echo(f"{job.name}: {own.degrees} on {job.nodes} x {job.processes} {answer.kind}")
    verdict = "fits" if own.fits else "DOES NOT FIT"
    typer.echo(f"  memory    {own.memory:.2f} of {hardware.memory:.1f} GiB a process: {verdict}")
    typer.echo(f"            at most in {own.traced.peak.phase}, GiB: {kinds or 'nothing of weight'}")
    kept, state = own.traced.kept / 2**30, job.checkpoint(own) / 2**30
    typer.echo(f"            {kept:.2f} between steps; a checkpoint has {state:.2f} in all")
    typer.echo(
        f"  a step    {own.step:.3g} s: {own.compute:.3g} computing, {own.communication:.3g} communicating alone, "
        f"{own.bubble:.3g} waiting for other stages"
    )
    if job.steps:
        hours = own.hours(job.steps)
        cost, price = hours * job.nodes * job.processes * hardware.price, hardware.price
        typer.echo(f"  in all    {job.steps:,} steps: {hours:.2f} h, {cost:.2f} USD at {price:g} an hour and process")
    if not own.fits:
        typer.echo(f"  to fit    {lacking(job.planned, own, job.place(hardware))}")
    if answer.ranking:
        _say_others(answer.ranking, own)


def _say_others(found: "Ranking", own: "Estimate") -> None:
    typer.echo("  other degrees, the fastest that fit first:")
    for other in found.estimates:
        if other.degrees != own.degrees:
            fits = "" if other.fits else "  does not fit"
            typer.echo(f"    {other.degrees!s:<44} {other.memory:8.2f} GiB {other.step:9.3g} s a step{fits}")
    for why, count in Counter(why for _, why in found.refused).most_common():
        typer.echo(f"    {count} more make no sense: {why}")
