"""`strategy: auto`: replaced in a recipe by the degrees that the plan ranks first."""

from collections.abc import Callable

from understudy.errors import InputError
from understudy.plan.estimate import Estimate
from understudy.plan.hardware import Hardware, table
from understudy.plan.job import Job, jobs
from understudy.plan.ranking import Ranking, ranking, workers
from understudy.plan.remedies import lacking
from understudy.recipe import Degrees, Recipe
from understudy.recipe.learners import with_train


def decided(recipe: Recipe, report: Callable[[str], None]) -> Recipe:
    """The recipe with degrees in place of every `auto`.

    Args:
        recipe: planned for the hardware in its resources, or CPUs if its device is cpu.
        report: called with each choice.

    Raises:
        InputError: nothing fits (the message has a remedy), or the hardware is not given or not in the table.
    """
    hardware_table = table()
    with workers() as pool:
        for job in list(jobs(recipe)) if recipe.undecided else ():
            if job.degrees is None:
                kind = _kind(job, hardware_table)
                best = best_degrees(
                    job, hardware_table[kind], ranking(job.planned, job.placement(hardware_table[kind]), pool)
                )
                report(f"{job.path}.train.strategy: auto is {best} on {job.nodes} x {job.processes} {kind}")
                recipe = with_strategy(recipe, job, best)
    return recipe


def best_degrees(job: Job, hardware: Hardware, ranked: Ranking) -> Degrees:
    """The fastest degrees that fit.

    Raises:
        InputError: none fit.
    """
    first = nearest(job, ranked)
    if first.fits:
        return first.degrees
    message = lacking(job.planned, first, job.placement(hardware))
    raise InputError(f"{job.path}.train.strategy: nothing fits; the nearest: {message}")


def nearest(job: Job, ranked: Ranking) -> Estimate:
    """The fastest estimate that fits, or else the one nearest to fitting.

    Raises:
        InputError: no degrees make sense.
    """
    if ranked.estimates:
        return ranked.estimates[0]
    reasons = "; ".join(dict.fromkeys(reason for _, reason in ranked.refused))
    path = f"{job.path}.train.strategy"
    raise InputError(f"{path}: no degrees suit {job.nodes} x {job.processes} processes: {reasons}")


def with_strategy(recipe: Recipe, job: Job, strategy: Degrees) -> Recipe:
    """The recipe with these degrees for one of its trainings."""
    return with_train(recipe, job.path, job.planned.train.model_copy(update={"strategy": strategy}))


def _kind(job: Job, hardware_table: dict[str, Hardware]) -> str:
    """The name of a job's hardware in the table."""
    names = ", ".join(hardware_table)
    path = f"resources.{job.resources}.hardware"
    if job.hardware is None:
        raise InputError(f"{path}: strategy: auto needs the kind of hardware; give one of {names}")
    if job.hardware not in hardware_table:
        raise InputError(f"{path}: {job.hardware} is not in the table ({names})")
    return job.hardware
