"""A training step of two ranks on the CPU, ddp and fsdp: ours, a loop written by hand, and the usual libraries.

    python -m benchmarks.steps [--rounds 10]

All train the same Llama from the same weights on the same batches with fused AdamW, clipped gradients and fp32, in the
same two processes, and take turns of some steps (turns.py). That their losses are the same is checked, and that under
fsdp a rank holds its shards alone. Libraries that are not installed are left out, and named; so are those that do not
shard on a CPU: Accelerate, and the Trainer above it, train copies there under any setting of FSDP.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks.ranks import results_by_rank
from benchmarks.step_work import BATCH, LLAMA, LOG_EVERY, RANKS, RATE, SEED, Work, write_work
from benchmarks.turns import Turns
from understudy.jobs.payload import TrainingJob
from understudy.models.facts import HISTORY
from understudy.recipe import Train
from understudy.recipe.objectives import without_teacher
from understudy.train import curve
from understudy.train.job import Callbacks, run
from understudy.train.resources import RankResources

TURN = 5
"""Steps."""
AGREE = 1e-4
"""How far losses may be apart: the same work, summed in another order."""
HAND, OURS = "by hand", "understudy"
LIBRARIES = {"Trainer": "transformers", "Accelerate": "accelerate", "Lightning": "lightning", "DeepSpeed": "deepspeed"}
COPIES_ALONE = {"Trainer", "Accelerate"}
"""Libraries that do not shard on a CPU."""


def by_hand(work: Work) -> None:
    """The loop that one would write oneself."""
    taught = work.taught(HAND)
    model: nn.Module = taught
    if work.strategy == "ddp":
        model = DistributedDataParallel(taught, gradient_as_bucket_view=True)
    else:
        for part in (*taught.blocks, taught):
            fully_shard(part)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    for step, (inputs, labels) in enumerate(work.rows().batches(dist.get_rank()), 1):
        loss = model(inputs, labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % LOG_EVERY == 0:
            float(norm), loss.item()


def ours(work: Work, turns: Turns) -> None:
    """Understudy's loop, as a job runs it; it makes the process group that the others use too."""
    inside = work.folder / f"work-{work.strategy}"
    inside.mkdir(exist_ok=True)
    settings = {
        "steps": work.steps,
        "batch_size": BATCH,
        "precision": "fp32",
        "strategy": work.strategy,
        "checkpoint_every": work.steps,
        "optimizer": {"learning_rate": RATE, "weight_decay": 0.0},
        "schedule": {"decay": "constant"},
    }
    job = TrainingJob(
        learner="teacher",
        path="teacher",
        model=LLAMA,
        train=Train.model_validate(settings),
        objectives=without_teacher(),
        seed=SEED,
        examples=work.folder,
        initial=work.folder / "model",
    )

    def phase(name: str, step: int) -> None:
        if name == "loading":
            turns.join(OURS)
        elif name == "saving":  # the others have ended: it was their turn before
            work.check_shards()
            average_losses(work)

    callbacks = Callbacks(
        heartbeat=phase,
        must_stop=lambda: False,
        begin_attempt=lambda world_size: "",
        join_attempt=lambda attempt: inside,
        report=lambda report: None,
    )
    # A loop that looks how fast it is, to report about twice a second, must not see the others' turns.
    with patch.object(curve, "time", SimpleNamespace(perf_counter=turns.own_time)):
        run(job, RankResources(RANKS, 1, "cpu", "resources.teacher"), callbacks)
    points = json.loads((inside / "output" / HISTORY).read_text())
    work.losses[OURS] = [torch.tensor(point["loss"]) for point in points]


def average_losses(work: Work) -> None:
    """Put the mean over ranks in the place of each rank's losses."""
    for name, losses in sorted(work.losses.items()):
        mean = torch.stack(losses)
        dist.all_reduce(mean)
        work.losses[name] = list(mean / RANKS)


Found = tuple[dict[str, list[tuple[float, float]]], dict[str, float]]


def rank_of(work: Work, names: list[str]) -> Found:
    """A rank: seconds a step of every loop, and how far its losses are from those of the loop by hand at most."""
    from benchmarks.step_peers import PEERS

    torch.set_num_threads(1)
    turns = Turns([*names, OURS], work.steps, TURN)
    loops: dict[str, Callable[[Work], None]] = {HAND: by_hand, **PEERS}
    turns.start({name: lambda loop=loops[name]: loop(work) for name in names})  # type: ignore[misc]
    ours(work, turns)
    losses = {name: torch.stack(recorded[: work.steps]).double() for name, recorded in work.losses.items()}
    apart = {name: (recorded - losses[HAND]).abs().max().item() for name, recorded in losses.items()}
    return turns.seconds, apart


def main() -> None:
    """Print each loop's time, and ours in proportion to it, round by round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    names = [HAND, *(name for name, module in LIBRARIES.items() if find_spec(module))]
    for missing in LIBRARIES.keys() - names:
        print(f"{missing} is not installed, and is left out")
    # One thread a rank, and one heap for all loops: glibc would give each thread its own, and map it anew all the time.
    os.environ |= {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "DS_ACCELERATOR": "cpu"}
    print("| strategy | loop | ms a step, min / median | ours / its | ours / its in CPU time | losses apart |")
    print("|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as folder:
        write_work(Path(folder))
        for strategy in ("ddp", "fsdp"):
            able = [name for name in names if strategy == "ddp" or name not in COPIES_ALONE]
            report(Work(Path(folder), strategy, TURN * (options.rounds + 1)), able)


def report(work: Work, names: list[str]) -> None:
    """The rows of a strategy."""
    result: Found = results_by_rank(RANKS, rank_of, work, names)[0]
    seconds, apart = result
    our_seconds = np.array(seconds[OURS])
    for name in (*names, OURS):
        its = np.array(seconds[name])
        cells = (
            columns(1000 * its[:, 0], 1),
            columns((our_seconds / its)[:, 0], 3),
            columns((our_seconds / its)[:, 1], 3),
        )
        print(f"| {work.strategy} | {name} | {' | '.join(cells)} | {apart[name]:.0e} |", flush=True)
        if apart[name] > AGREE:
            raise SystemExit(f"{name} does other work: its losses are {apart[name]:.1e} apart from the loop by hand's")


def columns(values: Any, digits: int) -> str:
    """Minimum and median."""
    return f"{values.min():.{digits}f} / {statistics.median(values):.{digits}f}"


if __name__ == "__main__":
    main()
