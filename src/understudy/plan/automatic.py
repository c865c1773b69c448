"""`strategy: auto`: the recipe with the degrees in its place that the plan ranks first."""

from collections.abc import Callable

from understudy.errors import InputError
from understudy.plan.estimate import Estimate
from understudy.plan.hardware import Hardware, table
from understudy.plan.job import Job, jobs
from understudy.plan.ranking import Ranking, ranking, workers
from understudy.plan.remedies import lacking
from understudy.recipe import Degrees, Recipe

SECTIONS = {"teacher": "teacher", "distill": "student"}
"""Where the recipe describes each job's training."""


def decided(recipe: Recipe, say: Callable[[str], None]) -> Recipe:
    """The recipe with degrees wherever it leaves them to the plan.

    Args:
        recipe: is planned for the hardware that its resources name, or CPUs where its device is cpu.
        say: told what was chosen.

    Raises:
        InputError: nothing fits (the message says what would), or it is not said on what the training runs.
    """
    known = table()
    with workers() as pool:
        for job in list(jobs(recipe)) if recipe.undecided else ():
            if job.degrees is None:
                kind = _kind(job, known)
                chosen = best_degrees(job, known[kind], ranking(job.planned, job.place(known[kind]), pool))
                say(f"{job.planned.where}.strategy: auto is {chosen} on {job.nodes} x {job.processes} {kind}")
                recipe = with_strategy(recipe, job, chosen)
    return recipe


def best_degrees(job: Job, hardware: Hardware, found: Ranking) -> Degrees:
    """The fastest that fit.

    Raises:
        InputError: none does.
    """
    first = nearest(job, found)
    if first.fits:
        return first.degrees
    words = lacking(job.planned, first, job.place(hardware))
    raise InputError(f"{job.planned.where}.strategy: nothing fits; the nearest: {words}")


def nearest(job: Job, found: Ranking) -> Estimate:
    """The fastest that fits, or what comes nearest to it.

    Raises:
        InputError: none makes sense.
    """
    if found.estimates:
        return found.estimates[0]
    reasons = "; ".join(dict.fromkeys(why for _, why in found.refused))
    where = f"{job.planned.where}.strategy"
    raise InputError(f"{where}: no degrees are for {job.nodes} x {job.processes} processes: {reasons}")


def with_strategy(recipe: Recipe, job: Job, chosen: Degrees) -> Recipe:
    """The recipe with these degrees for one of its trainings."""
    section = getattr(recipe, SECTIONS[job.name])
    train = section.train.model_copy(update={"strategy": chosen})
    return recipe.model_copy(update={SECTIONS[job.name]: section.model_copy(update={"train": train})})


def _kind(job: Job, known: dict[str, Hardware]) -> str:
    """What a job runs on, by its name in the table."""
    names = ", ".join(known)
    where = f"resources.{job.name}.hardware"
    if job.hardware is None:
        raise InputError(f"{where}: strategy: auto has to know what it chooses for; give one of {names}")
    if job.hardware not in known:
        raise InputError(f"{where}: {job.hardware} is not in the table ({names})")
    return job.hardware
