"""understudy plan: memory, time and cost of a recipe's trainings, before anything runs."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.output import print_json, watched
from understudy.cli.plan_text import Answer, print_plan, print_run, print_trainings
from understudy.cli.recipe import Overrides, RecipePath
from understudy.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from understudy.plan.estimate import Estimate
    from understudy.plan.job import Job
    from understudy.plan.machine import Machine
    from understudy.plan.run_requirements import RunRequirements

KindOfHardware = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        help="The hardware of each process, by its name in the table. Default: the recipe's, or else this machine's.",
    ),
]
ROW = "NAME: {memory: GiB, tflops: {fp32: 60, bf16: 990}, link: GB/s, network: GB/s, price: USD an hour}"
Table = Annotated[
    Path | None,
    typer.Option("--table", help=f"A table of hardware instead of the built-in one, YAML with rows like {ROW}."),
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
    """Estimate a recipe's memory in a process and on a node, disk, seconds of a step, hours, cost, and serving.

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
    from understudy.plan.run_requirements import run_requirements

    rows = kinds.table(table)
    if hardware and hardware not in rows:
        raise typer.BadParameter(f"{hardware} is not in the table ({', '.join(rows)})", param_hint="--hardware")
    written, _ = checked(recipe, overrides or (), elsewhere=True)
    try:
        trainings = list(jobs(written.recipe))
        counts_epochs = any(job.planned.train.epochs for job in trainings)
        examples = training_examples(written.recipe) if counts_epochs else None
        with workers() as pool:
            local_gpus = gpus()
            plan_job = partial(_plan_job, examples=examples, pool=pool, every=every, write=write)
            answers = [plan_job(job, machine_for(job, hardware, rows, local_gpus)) for job in trainings]
    except InputError as error:
        raise InputError(written.source.located(str(error))) from error
    requirements = run_requirements(written.recipe)
    if as_json:
        documents: dict[str, Any] = {answer.job.name: _machine(answer) for answer in answers}
        print_json({**documents, "run": _run(requirements)})
    else:
        for answer in answers:
            print_plan(answer)
        print_run(requirements, written.recipe.text.sequence_length)
        print_trainings(answers, control=written.recipe.student.control)
    if write:
        _write(recipe, answers)
    raise typer.Exit(0 if all(answer.fits for answer in answers) else 1)


def _plan_job(
    job: "Job", machine: "Machine", *, examples: int | None, pool: "Executor | None", every: bool, write: bool
) -> Answer:
    from understudy.plan.automatic import nearest
    from understudy.plan.disk import disk
    from understudy.plan.host import host_memory
    from understudy.plan.length import steps_of
    from understudy.plan.ranking import estimated, ranking

    placement, degrees = job.placement(machine.hardware), job.degrees
    bar = partial(watched, description=f"{job.name}: sets of degrees")
    ranked = ranking(job.planned, placement, pool, bar) if every or write or degrees is None else None
    if ranked and (write or degrees is None):
        degrees = nearest(job, ranked).degrees
    assert degrees is not None
    # Reuse the ranked estimate; zero1 and zero2 are not among the ranked sets of degrees.
    estimates = {ranked_estimate.degrees: ranked_estimate for ranked_estimate in ranked.estimates} if ranked else {}
    estimate = estimates.get(degrees) or estimated(job.planned, degrees, placement)
    host, steps = host_memory(job, estimate, machine.hardware), steps_of(job.planned.train, examples)
    return Answer(job, machine, steps, estimate, ranked if every else None, host, disk(job, estimate))


def _write(path: Path, answers: Sequence[Answer]) -> None:
    """Write only each training's degrees into the recipe's file; if a training does not fit, write nothing."""
    from understudy.recipe.edit import rewrite
    from understudy.recipe.learners import to_key_path

    if not all(answer.estimate.fits for answer in answers):
        typer.echo(f"{path}: unchanged, since not every training fits", err=True)
        return
    rewrite(
        path,
        {
            (*to_key_path(answer.job.path), "train", "strategy"): (
                answer.estimate.degrees.model_dump(exclude_defaults=True) or "single"
            )
            for answer in answers
        },
    )
    typer.echo(f"{path}: has these degrees now", err=True)


def _machine(answer: Answer) -> dict[str, Any]:
    ranked = answer.ranking
    estimated = partial(_estimate, has_times=answer.machine.has_times)
    alternatives = (
        [estimated(estimate) for estimate in ranked.estimates if estimate.degrees != answer.estimate.degrees]
        if ranked
        else []
    )
    refused = (
        [{"degrees": estimate.model_dump(), "reason": reason} for estimate, reason in ranked.refused] if ranked else []
    )
    left_out = ["compile"] if answer.job.planned.train.compile else []
    values: dict[str, Any] = {
        "hardware": answer.machine.kind,
        "hardware_reason": answer.machine.reason or None,
        "left_out": left_out,
        "plan": estimated(answer.estimate),
        "others": alternatives,
        "refused": refused,
    }
    job, hours = answer.job, answer.hours
    values |= {
        "nodes": job.nodes,
        "processes_per_node": job.processes,
        "usd_an_hour_and_process": answer.hardware.price,
    }
    values |= {"steps": answer.steps, "hours": hours, "usd": None if hours is None else answer.cost}
    host = {**asdict(answer.host), "all": answer.host.all, "fits": answer.host.fits}
    return {**values, "host_bytes": host, "disk_bytes": {**asdict(answer.disk), "most": answer.disk.most}}


def _run(requirements: "RunRequirements") -> dict[str, Any]:
    return {
        "models_bytes": dict(requirements.models),
        "evaluation_bytes": requirements.evaluation,
        "serving_bytes": {"weights": requirements.serving.weights, "cache": requirements.serving.cache},
    }


def _estimate(estimate: "Estimate", *, has_times: bool) -> dict[str, Any]:
    seconds = {
        "all": estimate.step,
        "compute": estimate.compute,
        "communication": estimate.communication,
        "bubble": estimate.bubble,
    }
    return {
        "degrees": estimate.degrees.model_dump(),
        "fits": estimate.fits,
        "memory_gib": estimate.memory,
        "peak_bytes": estimate.traced.peak.bytes,
        "peak_phase": estimate.traced.peak.phase,
        "kinds_bytes": estimate.traced.peak.kinds,
        "kept_bytes": estimate.traced.resident,
        "checkpoint_bytes": estimate.traced.state,
        "flops": estimate.traced.flops,
        "step_seconds": seconds if has_times else None,
    }
