"""understudy plan: memory, time and cost of a recipe's trainings, before anything runs."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.output import print_json, watched
from understudy.cli.plan_words import Answer, say, say_run, say_trainings
from understudy.cli.recipe import Overrides, RecipePath
from understudy.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from understudy.plan.estimate import Estimate
    from understudy.plan.job import Job
    from understudy.plan.machine import Machine
    from understudy.plan.whole_run import WholeRun

KindOfHardware = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        help="What each process has; a name in the table. Default: what the recipe says, or else this machine's.",
    ),
]
ROW = "NAME: {memory: GiB, tflops: {fp32: 60, bf16: 990}, link: GB/s, network: GB/s, price: USD an hour}"
Table = Annotated[
    Path | None,
    typer.Option("--table", help=f"A table of hardware in the place of the one built in, YAML with rows like {ROW}."),
]
All = Annotated[bool, typer.Option("--all", help="Every other set of degrees for the same processes, too.")]
Write = Annotated[bool, typer.Option("--write", help="Put the best degrees into the recipe's file.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


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
    from understudy.plan.length import training_examples
    from understudy.plan.machine import gpus, machine_for
    from understudy.plan.ranking import workers
    from understudy.plan.whole_run import whole_run

    known = kinds.table(table)
    if hardware and hardware not in known:
        raise typer.BadParameter(f"{hardware} is not in the table ({', '.join(known)})", param_hint="--hardware")
    written, _ = checked(recipe, overrides or (), elsewhere=True)
    try:
        trainings = list(jobs(written.recipe))
        counts_epochs = any(job.planned.train.epochs for job in trainings)
        examples = training_examples(written.recipe) if counts_epochs else None
        with workers() as pool:
            here = gpus()
            answered = partial(_answer, examples=examples, pool=pool, every=every, write=write)
            answers = [answered(job, machine_for(job, hardware, known, here)) for job in trainings]
    except InputError as error:
        raise InputError(written.source.located(str(error))) from error
    whole = whole_run(written.recipe, answers[-1].job.planned)
    if as_json:
        said: dict[str, Any] = {answer.job.name: _machine(answer) for answer in answers}
        print_json({**said, "run": _run(whole)})
    else:
        for answer in answers:
            say(answer)
        say_run(whole, written.recipe.text.sequence_length)
        say_trainings(answers, control=written.recipe.student.control)
    if write:
        _write(recipe, answers)
    raise typer.Exit(0 if all(answer.fits for answer in answers) else 1)


def _answer(
    job: "Job", machine: "Machine", *, examples: int | None, pool: "Executor | None", every: bool, write: bool
) -> Answer:
    from understudy.plan.automatic import nearest
    from understudy.plan.disk import disk
    from understudy.plan.host import host_memory
    from understudy.plan.length import steps_of
    from understudy.plan.ranking import estimated, ranking

    place, degrees = job.placement(machine.hardware), job.degrees
    bar = partial(watched, what=f"{job.name}: sets of degrees")
    found = ranking(job.planned, place, pool, bar) if every or write or degrees is None else None
    if found and (write or degrees is None):
        degrees = nearest(job, found).degrees
    assert degrees is not None
    # Reuse the ranked estimate; zero1 and zero2 are not among the ranked sets of degrees.
    ranked = {other.degrees: other for other in found.estimates} if found else {}
    own = ranked.get(degrees) or estimated(job.planned, degrees, place)
    host, steps = host_memory(job, own, machine.hardware), steps_of(job.planned.train, examples)
    return Answer(job, machine, steps, own, found if every else None, host, disk(job, own))


def _write(path: Path, answers: Sequence[Answer]) -> None:
    """Write only each training's degrees into the recipe's file; if a training does not fit, write nothing."""
    from understudy.plan.automatic import SECTIONS
    from understudy.recipe.edit import rewrite

    if not all(answer.own.fits for answer in answers):
        typer.echo(f"{path}: is as it was, since not every training fits", err=True)
        return
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
    estimated = partial(_estimate, has_times=answer.machine.has_times)
    others = [estimated(other) for other in found.estimates if other.degrees != answer.own.degrees] if found else []
    refused = [{"degrees": other.model_dump(), "reason": why} for other, why in found.refused] if found else []
    left_out = ["compile"] if answer.job.planned.train.compile else []
    said: dict[str, Any] = {
        "hardware": answer.machine.kind,
        "hardware_reason": answer.machine.reason or None,
        "left_out": left_out,
        "plan": estimated(answer.own),
        "others": others,
        "refused": refused,
    }
    job, hours = answer.job, answer.hours
    said |= {"nodes": job.nodes, "processes_per_node": job.processes, "usd_an_hour_and_process": answer.hardware.price}
    said |= {"steps": answer.steps, "hours": hours, "usd": None if hours is None else answer.cost}
    host = {**asdict(answer.host), "all": answer.host.all, "fits": answer.host.fits}
    return {**said, "host_bytes": host, "disk_bytes": {**asdict(answer.disk), "most": answer.disk.most}}


def _run(whole: "WholeRun") -> dict[str, Any]:
    return {
        "models_bytes": dict(whole.models),
        "evaluation_bytes": whole.evaluation,
        "serving_bytes": {"weights": whole.serving.weights, "cache": whole.serving.cache},
    }


def _estimate(own: "Estimate", *, has_times: bool) -> dict[str, Any]:
    seconds = {"all": own.step, "compute": own.compute, "communication": own.communication, "bubble": own.bubble}
    return {
        "degrees": own.degrees.model_dump(),
        "fits": own.fits,
        "memory_gib": own.memory,
        "peak_bytes": own.traced.peak.bytes,
        "peak_phase": own.traced.peak.phase,
        "kinds_bytes": own.traced.peak.kinds,
        "kept_bytes": own.traced.resident,
        "checkpoint_bytes": own.traced.state,
        "flops": own.traced.flops,
        "step_seconds": seconds if has_times else None,
    }
