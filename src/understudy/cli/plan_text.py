"""The printed output of `understudy plan`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from understudy.plan.disk import Disk
    from understudy.plan.estimate import Estimate
    from understudy.plan.hardware import Hardware
    from understudy.plan.host import HostMemory
    from understudy.plan.job import Job
    from understudy.plan.machine import Machine
    from understudy.plan.ranking import Ranking
    from understudy.plan.run_requirements import RunRequirements

SMALL = 100
"""Kinds of memory below the peak divided by this are not printed."""


@dataclass(frozen=True)
class Answer:
    """The plan of a training."""

    job: "Job"
    machine: "Machine"
    steps: int | None
    """Of the whole training; None if the recipe counts epochs and the data is not here."""
    estimate: "Estimate"
    """For the recipe's degrees; for the best ones if the recipe leaves them to the plan, and with --write."""
    ranking: "Ranking | None"
    """With --all."""
    host: "HostMemory"
    disk: "Disk"

    @property
    def fits(self) -> bool:
        """Whether the training fits the memory of its processes and nodes."""
        return self.estimate.fits and self.host.fits

    @property
    def hardware(self) -> "Hardware":
        """The hardware of each process."""
        return self.machine.hardware

    @property
    def hours(self) -> float | None:
        """None if the steps, or the hardware's speed, are unknown."""
        return self.estimate.hours(self.steps) if self.steps and self.machine.has_times else None

    @property
    def cost(self) -> float:
        """The cost of these hours, in USD."""
        return (self.hours or 0.0) * self.job.nodes * self.job.processes * self.hardware.price


def print_plan(answer: Answer) -> None:
    """Print the plan of a training."""
    from understudy.plan.remedies import lacking

    job, estimate, hardware = answer.job, answer.estimate, answer.hardware
    peak = estimate.traced.peak
    kinds = ", ".join(f"{kind} {_size(size)}" for kind, size in peak.kinds.items() if size > peak.bytes / SMALL)
    typer.echo(f"{job.name}: {estimate.degrees} on {job.nodes} x {job.processes} {answer.machine.kind}")
    if answer.machine.reason:
        typer.echo(f"  hardware  {answer.machine.reason}")
    verdict = "fits" if estimate.fits else "DOES NOT FIT"
    typer.echo(f"  memory    {estimate.memory:.2f} of {hardware.memory:.1f} GiB a process: {verdict}")
    typer.echo(f"            peak in {peak.phase}: {kinds}")
    between_steps, state = _size(estimate.traced.resident), _size(job.checkpoint(estimate))
    typer.echo(f"            {between_steps} between steps; a checkpoint has {state} in all")
    if job.planned.train.compile:
        typer.echo("            without compile, which is not planned and takes less")
    _print_host(answer)
    _print_disk(answer.disk)
    typer.echo(f"  a step    {_step(answer)}")
    typer.echo(f"  in all    {_in_all(answer)}")
    if not estimate.fits:
        typer.echo(f"  to fit    {lacking(job.planned, estimate, job.placement(hardware))}")
    if answer.ranking and (answer.ranking.refused or len(answer.ranking.estimates) > 1):
        _print_other_degrees(answer.ranking, answer)


def _step(answer: Answer) -> str:
    """A step's time as text."""
    estimate = answer.estimate
    if not answer.machine.has_times:
        return "no time, since the speed is not known; --table takes a row with it, --hardware another GPU's name"
    return (
        f"{_seconds(estimate.step)} s: {_seconds(estimate.compute)} computing, {_seconds(estimate.communication)} "
        f"communicating alone, {_seconds(estimate.bubble)} waiting for other stages"
    )


def _in_all(answer: Answer) -> str:
    """The whole training's time and cost as text."""
    epochs = answer.job.planned.train.epochs
    counted = f"{epochs:,} epoch{'s' * (epochs > 1)}" if epochs else ""
    if answer.steps is None:
        return f"{counted}; the number of steps depends on the data, which is not here"
    price = answer.hardware.price
    cost = f", {answer.cost:.2f} USD at {price:g} an hour and process" if price else ""
    length = f"{counted}, about {answer.steps:,} steps" if counted else f"{answer.steps:,} steps"
    return length if answer.hours is None else f"{length}: {_time(answer.hours)}{cost}"


def _print_host(answer: Answer) -> None:
    host = answer.host
    kinds = {"processes": host.processes, "their tensors": host.tensors, "copies for a checkpoint": host.checkpoint}
    parts = ", ".join(f"{kind} {_size(size)}" for kind, size in kinds.items() if size)
    typer.echo(f"  host      {_size(host.all)} of each node's memory: {parts}")
    if host.limit is not None:
        verdict = "fits" if host.fits else "DOES NOT FIT"
        typer.echo(
            f"            {_size(host.limit)} are available, by resources.{answer.job.resources}.memory: {verdict}"
        )


def _print_disk(needed: "Disk") -> None:
    checkpoints = f"{needed.checkpoints} checkpoint{'s' * (needed.checkpoints > 1)} of {_size(needed.checkpoint)}"
    model = f"the model, {_size(needed.model)}, stays"
    typer.echo(f"  disk      {_size(needed.most)} of the store at most, with {checkpoints}; {model}")


def print_run(requirements: "RunRequirements", length: int) -> None:
    """Print the models' size, and the memory of evaluation and of serving sequences of that length."""
    models = ", ".join(f"{role} {_size(size)}" for role, size in requirements.models.items())
    typer.echo("the run:")
    typer.echo(f"  models    {_size(sum(requirements.models.values()))} stay in the store: {models}")
    typer.echo(f"  evaluate  {_size(requirements.evaluation)} of weights in each process")
    weights, cached = _size(requirements.serving.weights), _cache_text(requirements.serving.cache, length)
    typer.echo(f"  serving   the student in {requirements.serving.precision}: {weights} of weights, {cached}")


def print_trainings(answers: Sequence[Answer], *, control: bool) -> None:
    """Print the time and cost of all trainings, if there is an estimate for each."""
    hours = [answer.hours for answer in answers if answer.hours is not None]
    if len(hours) == len(answers):
        control_note = "; the control, at most as long as distill, comes on top" if control else ""
        cost = sum(answer.cost for answer in answers)
        price = f", {cost:.2f} USD" if cost else ""
        typer.echo(f"  trainings {_time(sum(hours))} one after another{price}{control_note}")


def _cache_text(cache: int | None, length: int) -> str:
    """The memory that serving keeps for a sequence, as text."""
    if cache is None:
        return "and the cache of its own code"
    return f"{_size(cache)} of keys and values for each {length:,} tokens" if cache else "no keys and values"


def _size(size: int) -> str:
    """A size in GiB, or in MiB below a tenth of a GiB."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.2f} MiB"


def _time(hours: float) -> str:
    """A time in hours, or a short one in minutes or seconds."""
    seconds = hours * 3600
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{hours:.2f} h" if hours >= 1 else f"{seconds / 60:.1f} min"


def _seconds(number: float) -> str:
    """Seconds to three digits, without an exponent."""
    if number < 5e-7 or 0.001 <= number < 999.5:
        return f"{number:.3g}" if number >= 5e-7 else "0"
    return f"{number:,.0f}" if number > 1 else f"{number:.6f}"


def _print_other_degrees(ranked: "Ranking", answer: Answer) -> None:
    typer.echo("  other degrees, the fastest that fit first:")
    for estimate in ranked.estimates:
        if estimate.degrees != answer.estimate.degrees:
            step = f" {_seconds(estimate.step):>9} s a step" if answer.machine.has_times else ""
            fits = "" if estimate.fits else "  does not fit"
            typer.echo(f"    {estimate.degrees!s:<44} {estimate.memory:8.2f} GiB{step}{fits}")
    for reason, count in Counter(reason for _, reason in ranked.refused).most_common():
        typer.echo(f"    {count} more are unsuitable: {reason}")
