"""A ranking of all sets of degrees of a training: the fastest that fits first, and the reasons against the others."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing import get_context
from typing import Any

import torch

from understudy.errors import InputError
from understudy.plan.choices import all_degrees, refusal, suited
from understudy.plan.depth import Depths, deep_traces, depths
from understudy.plan.estimate import Estimate, estimate
from understudy.plan.hardware import Hardware
from understudy.plan.planned import Planned
from understudy.recipe import Degrees
from understudy.train.precision import BESIDE_FLOAT8, PRECISIONS

ENOUGH = 8
"""Number of sets of degrees from which worker processes are worth their start-up."""


Watched = Callable[[Iterable[Estimate | str], int], Iterable[Estimate | str]]


@dataclass(frozen=True)
class Placement:
    """The hardware, nodes and processes of a training."""

    hardware: Hardware
    nodes: int
    processes: int
    """On each node."""


@dataclass(frozen=True)
class Ranking:
    """Sets of degrees for a place's number of processes."""

    estimates: tuple[Estimate, ...]
    """Those that fit, the fastest first; then those that do not, the smallest first."""
    refused: tuple[tuple[Degrees, str], ...]
    """Those that make no sense, with the reason."""

    @property
    def best(self) -> Estimate | None:
        """The fastest that fits."""
        return next((fitting for fitting in self.estimates if fitting.fits), None)


def estimated(planned: Planned, degrees: Degrees, placement: Placement, model_depths: Depths | None = None) -> Estimate:
    """The estimate of a training with these degrees.

    Args:
        planned: the training.
        degrees: its degrees.
        placement: the hardware.
        model_depths: the depths of its models, if computed before.

    Raises:
        InputError: the model cannot be spread with these degrees, or the hardware does not support the precision.
    """
    train, hardware = planned.train, placement.hardware
    if train.precision not in ("auto", *hardware.tflops):
        kinds = ", ".join(hardware.tflops)
        problem = f"the hardware does not compute in {train.precision}, but in {kinds}; use one of those"
        raise InputError(f"{planned.settings.train_path}.precision: {problem}")
    able = "bf16" in hardware.tflops and hardware.is_gpu
    precision = {"auto": "bf16" if able else "fp32", "fp8": BESIDE_FLOAT8}.get(train.precision, train.precision)
    device = "cuda" if hardware.is_gpu else "cpu"
    traced = deep_traces(planned, degrees, model_depths or depths(planned), device, PRECISIONS[precision])
    return estimate(train, degrees, traced, hardware, placement.processes, precision)


def ranking(
    planned: Planned, placement: Placement, pool: Executor | None = None, watched: Watched = lambda results, _: results
) -> Ranking:
    """Rank all sets of degrees for a training.

    Args:
        planned: the training.
        placement: the hardware.
        pool: processes that trace, if there are ENOUGH sets; see workers().
        watched: wraps the iterator over the given number of results, to show progress.
    """
    refused, candidates = [], []
    for factors in all_degrees(placement.nodes * placement.processes):
        degrees = suited(planned, factors)
        reason = refusal(planned, degrees, placement.processes)
        if reason:
            refused.append((degrees, reason))
        else:
            candidates.append(degrees)
    estimates, groups = [], families(candidates)
    mapped = pool.map if pool and len(candidates) >= ENOUGH else map
    results = watched(
        chain.from_iterable(mapped(partial(_estimates, planned, placement, depths(planned)), groups)), len(candidates)
    )
    by_degrees = dict(zip((degrees for family in groups for degrees in family), results, strict=True))
    for degrees in candidates:
        if isinstance(result := by_degrees[degrees], Estimate):
            estimates.append(result)
        else:
            refused.append((degrees, result))
    estimates.sort(
        key=lambda estimate: (not estimate.fits, estimate.step if estimate.fits else estimate.memory, estimate.memory)
    )
    return Ranking(tuple(estimates), tuple(refused))


def families(candidates: Iterable[Degrees]) -> list[list[Degrees]]:
    """Groups of degrees whose ranks compute the same and differ in sharding, so that they share cached results.

    The slowest to trace are first.
    """
    groups: dict[tuple[object, ...], list[Degrees]] = {}
    for degrees in candidates:
        computation = degrees.pp, degrees.cp, degrees.tp, degrees.cp_comm_type
        groups.setdefault(computation, []).append(degrees)
    return sorted(groups.values(), key=lambda family: (-family[0].pp, -len(family)))


def _estimates(
    planned: Planned, placement: Placement, model_depths: Depths, family: Sequence[Degrees]
) -> list[Estimate | str]:
    return [_estimate_or_refusal(planned, placement, model_depths, degrees) for degrees in family]


def _estimate_or_refusal(
    planned: Planned, placement: Placement, model_depths: Depths, degrees: Degrees
) -> Estimate | str:
    try:
        return estimated(planned, degrees, placement, model_depths)
    except InputError as error:
        return str(error)


@contextmanager
def workers() -> Iterator[Executor | None]:
    """A pool with a process for each core; None if there is one core.

    It is for several rankings, since processes cache results. They start when there is work.
    """
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        yield None
        return
    with ProcessPoolExecutor(cores, get_context("spawn"), initializer=_quiet) as pool:
        yield pool


def _quiet(*_: Any) -> None:
    """Trace on one core, and without warnings: a process reports by its results alone."""
    import logging

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
