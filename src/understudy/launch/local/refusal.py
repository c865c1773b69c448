"""Rejection of jobs that certainly do not fit this machine, before they begin."""

import shutil
from pathlib import Path

from understudy.errors import InputError
from understudy.host_memory import available_memory
from understudy.jobs.payload import Benchmark, Evaluation, TrainingJob
from understudy.jobs.specification import JobSpec
from understudy.launch.local.weighing import model_weights
from understudy.models.weight_files import weight_bytes
from understudy.plan.lower_bounds import evaluation_memory, taken_over, training_disk, training_memory
from understudy.recipe import Degrees, degrees
from understudy.recipe.strategy import StrategyName
from understudy.store import Run

GIB = 2**30


def check_that_it_fits(run: Run, spec: JobSpec) -> None:
    """Reject a job whose minimum memory or disk space is more than is free.

    Args:
        run: the job's run.
        spec: the job; its folder may contain checkpoints to resume from.

    Raises:
        InputError: it cannot fit; the message has both numbers and the fix.
    """
    if isinstance(spec.payload, TrainingJob):
        _refuse_training(run, spec, spec.payload)
    elif isinstance(spec.payload, Evaluation | Benchmark):
        _refuse_evaluation(spec, spec.payload)


def _refuse_training(run: Run, spec: JobSpec, job: TrainingJob) -> None:
    train, path = job.train, job.train_path
    mesh_degrees = _degrees(train.strategy, spec)
    if mesh_degrees is None:
        return
    weights = model_weights(run, spec, job)
    needed = training_memory(job, mesh_degrees, spec.device, weights)
    if needed > (free := available_memory(with_swap=True)):
        raise InputError(
            f"{path}: weights, gradients and the optimiser's state take {_gib(needed)} of memory, without anything "
            f"else, and {_gib(free)} are free here; {_smaller(needed, free, mesh_degrees, 'strategy')}"
        )
    folder = Path(spec.folder)
    has_checkpoints = any(folder.glob("**/checkpoints/step-*"))
    writes = taken_over(weights.model) if has_checkpoints else training_disk(train, weights.model)
    if writes > (free := _free_disk(folder) + _written(folder)):
        raise InputError(
            f"{path}: checkpoints and the finished model take {_gib(writes)} of disk at the same time, and "
            f"{_gib(free)} are free in {folder.parents[2]}; make room (understudy store gc shows what can go), or give "
            "--home a larger disk"
        )


def _refuse_evaluation(spec: JobSpec, work: Evaluation | Benchmark) -> None:
    mesh_degrees = _degrees(work.recipe.evaluate.strategy, spec)
    if mesh_degrees is None:
        return
    models = sum(weight_bytes(Path(folder)) for folder in work.models.values())
    needed = evaluation_memory(mesh_degrees, spec.device, models)
    if needed > (free := available_memory(with_swap=True)):
        raise InputError(
            f"evaluate: the weights of {', '.join(work.models)} take {_gib(needed)} of memory, without anything else, "
            f"and {_gib(free)} are free here; {_smaller(needed, free, mesh_degrees, 'evaluate.strategy')}"
        )


def _smaller(needed: int, free: int, mesh_degrees: Degrees, setting: str) -> str:
    """Advice on how to need less memory."""
    if needed // mesh_degrees.dp_replicate <= free:
        return f"{setting}: fsdp holds them once, and not {mesh_degrees.dp_replicate} times"
    return "take a smaller model, or a machine with more memory"


def _degrees(strategy: StrategyName | Degrees, spec: JobSpec) -> Degrees | None:
    """The degrees; None if they do not fit the number of processes, which the job will report."""
    try:
        return degrees(strategy, spec.nodes, spec.processes, spec.section)
    except ValueError:
        return None


def _free_disk(folder: Path) -> int:
    """Bytes that this user may still write to a folder's file system."""
    return shutil.disk_usage(folder).free


def _written(folder: Path) -> int:
    """Bytes of the files that the job will keep or replace."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
