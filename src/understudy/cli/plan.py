"""understudy plan: memory, time and cost of a recipe's trainings, before anything runs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.output import print_json, watched
from understudy.cli.recipe import Overrides, RecipePath
from understudy.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from understudy.plan.disk import Disk
    from understudy.plan.estimate import Estimate
    from understudy.plan.hardware import Hardware
    from understudy.plan.host import HostMemory
    from understudy.plan.job import Job
    from understudy.plan.ranking import Ranking
    from understudy.plan.whole_run import WholeRun

DEFAULT = "H100"
SMALL = 100
"""Kinds of memory that are a smaller part of the peak are not said."""
KindOfHardware = Annotated[
    str | None,
    typer.Option(
        "--hardware", help=f"What each process has; a name in the table. Default: what the recipe says, or {DEFAULT}."
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
    host: "HostMemory"
    disk: "Disk"

    @property
    def fits(self) -> bool:
        """Whether it fits its processes, and its nodes."""
        return self.own.fits and self.host.fits

    @property
    def hours(self) -> float | None:
        """None where the recipe counts epochs."""
        return self.own.hours(self.job.steps) if self.job.steps else None

    @property
    def cost(self) -> float:
        """Of these hours, in USD."""
        return (self.hours or 0.0) * self.job.nodes * self.job.processes * self.hardware.price


def plan(
    recipe: RecipePath,
    overrides: Overrides = None,
    hardware: KindOfHardware = None,
    table: Table = None,
    every: All = False,
    write: Write = False,
    as_json: AsJson = False,
) -> None:
    """Say what a recipe takes: memory of a process and of a node, disk, seconds of a step, hours, cost, and serving.

    Nothing is trained, and no GPU is needed: the real loop runs on tensors without memory, on data imagined from the
    recipe. Of pretrained models the configuration is read, or fetched from the hub, and no weights. Exit codes: 0 every
    training fits, 1 one does not, 2 the recipe is wrong.
    """
    from understudy.cli.recipe import checked
    from understudy.plan import hardware as kinds
    from understudy.plan.job import jobs
    from understudy.plan.ranking import workers
    from understudy.plan.whole_run import whole_run

    known = kinds.table(table)
    written, _ = checked(recipe, overrides or (), elsewhere=True)
    try:
        with workers() as pool:
            answers = [_answer(job, hardware, known, pool, every=every, write=write) for job in jobs(written.recipe)]
    except InputError as error:
        raise InputError(written.source.located(str(error))) from error
    whole = whole_run(written.recipe, answers[-1].job.planned)
    if as_json:
        said: dict[str, Any] = {answer.job.name: _machine(answer) for answer in answers}
        print_json({**said, "run": _run(whole)})
    else:
        for answer in answers:
            _say(answer)
        _say_run(whole, written.recipe.text.sequence_length)
        _say_trainings(answers, control=written.recipe.student.control)
    if write:
        _write(recipe, answers)
    raise typer.Exit(0 if all(answer.fits for answer in answers) else 1)


def _answer(
    job: "Job", named: str | None, known: "dict[str, Hardware]", pool: "Executor | None", *, every: bool, write: bool
) -> Answer:
    from understudy.plan.automatic import best_degrees
    from understudy.plan.disk import disk
    from understudy.plan.host import host_memory
    from understudy.plan.ranking import estimated, ranking

    kind = named or job.hardware or DEFAULT
    if kind not in known:
        why = f"{kind} is not in the table ({', '.join(known)})"
        if named:
            raise typer.BadParameter(why, param_hint="--hardware")
        raise InputError(f"resources.{job.name}.hardware: {why}")
    place, degrees = job.place(known[kind]), job.degrees
    bar = partial(watched, what=f"{job.name}: sets of degrees")
    found = ranking(job.planned, place, pool, bar) if every or write or degrees is None else None
    if found and (write or degrees is None):
        degrees = best_degrees(job, known[kind], found)
    assert degrees is not None
    # What was ranked is there already, but for zero1 and zero2, which are not among the sets of degrees.
    ranked = {other.degrees: other for other in found.estimates} if found else {}
    own = ranked.get(degrees) or estimated(job.planned, degrees, place)
    host = host_memory(job, own, known[kind])
    return Answer(job, kind, known[kind], own, found if every else None, host, disk(job, own))


def _write(path: Path, answers: Sequence[Answer]) -> None:
    """The degrees of each training in the recipe's file, and nothing else of it."""
    from understudy.plan.automatic import SECTIONS
    from understudy.recipe.edit import rewrite

    rewrite(
        path,
        {
            (SECTIONS[answer.job.name], "train", "strategy"): answer.own.degrees.model_dump(exclude_defaults=True)
            or "single"
            for answer in answers
        },
    )
    typer.echo(f"{path}: has these degrees now", err=True)


def _machine(answer: Answer) -> dict[str, Any]:
    found = answer.ranking
    others = [_estimate(other) for other in found.estimates if other.degrees != answer.own.degrees] if found else []
    refused = [{"degrees": other.model_dump(), "reason": why} for other, why in found.refused] if found else []
    left_out = ["compile"] if answer.job.planned.train.compile else []
    said = {
        "hardware": answer.kind,
        "left_out": left_out,
        "plan": _estimate(answer.own),
        "others": others,
        "refused": refused,
    }
    host = {**asdict(answer.host), "all": answer.host.all, "fits": answer.host.fits}
    return {**said, "host_bytes": host, "disk_bytes": {**asdict(answer.disk), "most": answer.disk.most}}


def _run(whole: "WholeRun") -> dict[str, Any]:
    return {
        "models_bytes": dict(whole.models),
        "evaluation_bytes": whole.evaluation,
        "serving_bytes": asdict(whole.serving),
    }


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
    peak = own.traced.peak
    kinds = ", ".join(f"{kind} {_size(size)}" for kind, size in peak.kinds.items() if size > peak.bytes / SMALL)
    typer.echo(f"{job.name}: {own.degrees} on {job.nodes} x {job.processes} {answer.kind}")
    verdict = "fits" if own.fits else "DOES NOT FIT"
    typer.echo(f"  memory    {own.memory:.2f} of {hardware.memory:.1f} GiB a process: {verdict}")
    typer.echo(f"            at most in {peak.phase}: {kinds}")
    kept, state = _size(own.traced.kept), _size(job.checkpoint(own))
    typer.echo(f"            {kept} between steps; a checkpoint has {state} in all")
    if job.planned.train.compile:
        typer.echo("            without compile, which is not planned and takes less")
    _say_host(answer)
    _say_disk(answer.disk)
    typer.echo(
        f"  a step    {_seconds(own.step)} s: {_seconds(own.compute)} computing, {_seconds(own.communication)} "
        f"communicating alone, {_seconds(own.bubble)} waiting for other stages"
    )
    if answer.hours is not None:
        in_all = f"{_time(answer.hours)}, {answer.cost:.2f} USD at {hardware.price:g} an hour and process"
        typer.echo(f"  in all    {job.steps:,} steps: {in_all}")
    if not own.fits:
        typer.echo(f"  to fit    {lacking(job.planned, own, job.place(hardware))}")
    if answer.ranking and (answer.ranking.refused or len(answer.ranking.estimates) > 1):
        _say_others(answer.ranking, own)


def _say_host(answer: Answer) -> None:
    host = answer.host
    kinds = {"processes": host.processes, "their tensors": host.tensors, "copies for a checkpoint": host.checkpoint}
    parts = ", ".join(f"{kind} {_size(size)}" for kind, size in kinds.items() if size)
    typer.echo(f"  host      {_size(host.all)} of each node's memory: {parts}")
    if host.limit is not None:
        verdict = "fits" if host.fits else "DOES NOT FIT"
        typer.echo(f"            {_size(host.limit)} are there, by resources.{answer.job.name}.memory: {verdict}")


def _say_disk(found: "Disk") -> None:
    checkpoints = f"{found.checkpoints} checkpoint{'s' * (found.checkpoints > 1)} of {_size(found.checkpoint)}"
    stays = f"the model, {_size(found.model)}, stays"
    typer.echo(f"  disk      {_size(found.most)} of the store at most, with {checkpoints}; {stays}")


def _say_run(whole: "WholeRun", length: int) -> None:
    models = ", ".join(f"{role} {_size(size)}" for role, size in whole.models.items())
    typer.echo("the run:")
    typer.echo(f"  models    {_size(sum(whole.models.values()))} stay in the store: {models}")
    typer.echo(f"  evaluate  {_size(whole.evaluation)} of weights in each process")
    weights, kept = _size(whole.serving.weights), _kept(whole.serving.cache, length)
    typer.echo(f"  serving   the student in fp32: {weights} of weights, {kept}")


def _say_trainings(answers: Sequence[Answer], *, control: bool) -> None:
    """All of them together, where the recipe says how long each is."""
    hours = [answer.hours for answer in answers if answer.hours is not None]
    if len(hours) == len(answers):
        more = "; the control, at most as long as distill, comes on top" if control else ""
        cost = sum(answer.cost for answer in answers)
        typer.echo(f"  trainings {_time(sum(hours))} one after another, {cost:.2f} USD{more}")


def _kept(cache: int | None, length: int) -> str:
    """What serving keeps of a sequence."""
    if cache is None:
        return "and what its own code keeps of a sequence"
    return f"{_size(cache)} of keys and values for each {length:,} tokens" if cache else "no keys and values"


def _size(size: int) -> str:
    """In GiB, or in MiB where that says more."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.2f} MiB"


def _time(hours: float) -> str:
    """In hours, or in what says more of a short training."""
    seconds = hours * 3600
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{hours:.2f} h" if hours >= 1 else f"{seconds / 60:.1f} min"


def _seconds(number: float) -> str:
    """To three digits, and none of them behind an e."""
    if not number or 0.001 <= number < 1000:
        return f"{number:.3g}"
    return f"{number:,.0f}" if number > 1 else f"{number:.6f}"


def _say_others(found: "Ranking", own: "Estimate") -> None:
    typer.echo("  other degrees, the fastest that fit first:")
    for other in found.estimates:
        if other.degrees != own.degrees:
            fits = "" if other.fits else "  does not fit"
            typer.echo(f"    {other.degrees!s:<44} {other.memory:8.2f} GiB {_seconds(other.step):>9} s a step{fits}")
    for why, count in Counter(why for _, why in found.refused).most_common():
        typer.echo(f"    {count} more make no sense: {why}")
