"""Every set of degrees of a training: the fastest that fits first, and why the others make no sense or do not fit."""

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
from understudy.plan.trace import Planned
from understudy.recipe import Degrees
from understudy.train.precision import BESIDE_FLOAT8, PRECISIONS

ENOUGH = 8
"""Sets of degrees, from which processes of their own are worth their start."""


Watched = Callable[[Iterable[Estimate | str], int], Iterable[Estimate | str]]


@dataclass(frozen=True)
class Place:
    """What a training runs on."""

    hardware: Hardware
    nodes: int
    processes: int
    """On each node."""


@dataclass(frozen=True)
class Ranking:
    """Sets of degrees for as many processes as a place has."""

    estimates: tuple[Estimate, ...]
    """The fastest first, and what does not fit last, the smallest first."""
    refused: tuple[tuple[Degrees, str], ...]
    """Those that make no sense, with the reason."""

    @property
    def best(self) -> Estimate | None:
        """The fastest that fits."""
        return next((found for found in self.estimates if found.fits), None)


def estimated(planned: Planned, found: Degrees, place: Place, known: Depths | None = None) -> Estimate:
    """What a training takes with these degrees.

    Args:
        planned: the training.
        found: its degrees.
        place: what it runs on.
        known: the depths of its models, where they were looked for already.

    Raises:
        InputError: the model cannot be spread like this, or the hardware does not compute in what is asked.
    """
    train, hardware = planned.train, place.hardware
    if train.precision not in ("auto", *hardware.tflops):
        kinds = ", ".join(hardware.tflops)
        why = f"the hardware does not compute in {train.precision}, but in {kinds}; use one of those"
        raise InputError(f"{planned.where}.precision: {why}")
    able = "bf16" in hardware.tflops and hardware.is_gpu
    precision = {"auto": "bf16" if able else "fp32", "fp8": BESIDE_FLOAT8}.get(train.precision, train.precision)
    device = "cuda" if hardware.is_gpu else "cpu"
    traced = deep_traces(planned, found, known or depths(planned), device, PRECISIONS[precision])
    return estimate(train, found, traced, hardware, place.processes, precision)


def ranking(
    planned: Planned, place: Place, pool: Executor | None = None, watched: Watched = lambda answers, _: answers
) -> Ranking:
    """All sets of degrees for a training.

    Args:
        planned: the training.
        place: what it runs on.
        pool: processes that trace, where there is more than a little to do; see workers().
        watched: shows how many of so many answers were taken from it.
    """
    refused, asked = [], []
    for factors in all_degrees(place.nodes * place.processes):
        found = suited(planned, factors)
        why = refusal(planned, found, place.processes)
        if why:
            refused.append((found, why))
        else:
            asked.append(found)
    estimates, together = [], families(asked)
    mapped = pool.map if pool and len(asked) >= ENOUGH else map
    answers = watched(
        chain.from_iterable(mapped(partial(_answers, planned, place, depths(planned)), together)), len(asked)
    )
    answered = dict(zip((found for family in together for found in family), answers, strict=True))
    for found in asked:
        if isinstance(answer := answered[found], Estimate):
            estimates.append(answer)
        else:
            refused.append((found, answer))
    estimates.sort(key=lambda other: (not other.fits, other.step if other.fits else other.memory, other.memory))
    return Ranking(tuple(estimates), tuple(refused))


def families(asked: Iterable[Degrees]) -> list[list[Degrees]]:
    """Sets of degrees whose ranks compute the same, and differ in who holds what: what one of them had to find out, the
    others remember. Those that take longest to trace are first.
    """
    found: dict[tuple[object, ...], list[Degrees]] = {}
    for degrees in asked:
        alike = degrees.pp, degrees.cp, degrees.tp, degrees.cp_comm_type
        found.setdefault(alike, []).append(degrees)
    return sorted(found.values(), key=lambda family: (-family[0].pp, -len(family)))


def _answers(planned: Planned, place: Place, known: Depths, family: Sequence[Degrees]) -> list[Estimate | str]:
    return [_answer(planned, place, known, found) for found in family]


def _answer(planned: Planned, place: Place, known: Depths, found: Degrees) -> Estimate | str:
    try:
        return estimated(planned, found, place, known)
    except InputError as error:
        return str(error)


@contextmanager
def workers() -> Iterator[Executor | None]:
    """A process for each core, for one ranking after another, since they remember what they found out; they start when
    there is something to do. None where there is one core.
    """
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        yield None
        return
    with ProcessPoolExecutor(cores, get_context("spawn"), initializer=_quiet) as pool:
        yield pool


def _quiet(*_: Any) -> None:
    """Each process traces on one core, and what it has to say of a set of degrees is its answer."""
    import logging

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
