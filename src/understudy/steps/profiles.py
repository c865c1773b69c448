"""The profiles of a run's trainings, merged from those of their ranks, or the reason why a training has none."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from understudy.graph import trainings
from understudy.jobs import attempts
from understudy.jobs.files import read
from understudy.jobs.specification import JobSpec
from understudy.plan.hardware import TERA, table
from understudy.recipe import Recipe
from understudy.steps.step import Work
from understudy.store import Run
from understudy.store.files import read_json, write_json
from understudy.train.profile import KINDS, RANK_PROFILE, Kind, Profile, RankProfile


def keep_profile(work: Work, spec: JobSpec) -> None:
    """Merge the ranks' profiles of a finished training into the run's folder; if any is missing, add a note.

    Raises:
        UnderstudyError: a rank's profile is a link, or no file.
    """
    ranks = attempts.ranks(spec)
    profiles = [read(spec.profile_of(rank), RANK_PROFILE) for rank in ranks]
    complete = [profile for profile in profiles if profile and _is_whole(profile, len(ranks))]
    if len(complete) == len(ranks):
        write_json(work.run.profiles / f"{work.step}.json", together(complete))
    elif complete:
        work.run.note(f"{work.step}: no profile, because only {len(complete)} of {len(ranks)} ranks left one")
    else:
        work.run.note(f"{work.step}: no profile: this run took fewer than three of its steps, or ended in the middle")


def _is_whole(profile: RankProfile, world_size: int) -> bool:
    """Whether a profile is of this attempt's ranks, and has all kinds."""
    return profile["world_size"] == world_size and set(profile["kinds"]) == set(KINDS)


def together(ranks: Sequence[RankProfile]) -> Profile:
    """Merge the profiles of all ranks."""
    first, slowest = ranks[0], max(ranks, key=lambda rank: rank["recorded_seconds"] - rank["kinds"]["communication"])
    seconds = fmean(rank["seconds"] for rank in ranks)
    flop = sum(rank["flop"] for rank in ranks)
    peak, why = _peak(first["device"], first["precision"])
    return Profile(
        world_size=len(ranks),
        device=first["device"],
        precision=first["precision"],
        first_step=first["first_step"],
        steps=first["steps"],
        seconds=seconds,
        recorded_seconds=fmean(rank["recorded_seconds"] for rank in ranks),
        kinds={kind: fmean(rank["kinds"][kind] for rank in ranks) for kind in KINDS},
        sent=fmean(rank["sent"] for rank in ranks),
        slowest=slowest["rank"],
        slowest_kinds=_in_order(slowest["kinds"]),
        targets_per_second=first["targets"] / seconds if seconds else 0.0,
        flop=flop,
        mfu=flop / (seconds * len(ranks) * peak) if peak and seconds else None,
        no_mfu=why,
    )


def _in_order(kinds: Mapping[Kind, float]) -> dict[Kind, float]:
    return {kind: kinds[kind] for kind in KINDS}


def _peak(device: str, precision: str) -> tuple[float | None, str]:
    """The peak FLOP/s of a device in a precision, by its data sheet; None and the reason if unknown."""
    if device == "cpu":
        return None, "the peak speed of this CPU is not known"
    words = device.replace("-", " ").split()
    hardware = next((hardware for name, hardware in table().items() if name in words), None)
    if hardware is None:
        return None, f"the peak speed of {device} is not in the table of hardware"
    if precision not in hardware.tflops:
        return None, f"the peak speed of {device} in {precision} is not in the table of hardware"
    return hardware.tflops[precision] * TERA, ""


def profiles_of(run: Run) -> dict[str, Profile]:
    """A run's profiles, by the role of the trained model."""
    trained = trainings(Recipe.model_validate(run.recipe, by_alias=True))
    profiles = {node.role: read_json(run.profiles / f"{node.name}.json") for node in trained}
    return {role: profile for role, profile in profiles.items() if profile}


def unprofiled(run: Run) -> Iterator[str]:
    """Why trainings of a run with profiling have no profile, except for those with a note from keep_profile()."""
    if not run.is_profiled:
        return
    recipe = Recipe.model_validate(run.recipe, by_alias=True)
    nodes = trainings(recipe)
    for node in nodes:
        if not node.training:
            yield f"{node.name}: no profile: it is used as it is, without a training"
    states = {node.name: run.state(node.name) for node in nodes if node.training}
    reused = [step for step, state in states.items() if state and state.state == "reused"]
    if reused:
        yield (
            f"{', '.join(reused)}: no profile: an earlier run has trained {'it' if len(reused) == 1 else 'them'}; "
            "another seed (--set seed=1) trains anew"
        )
