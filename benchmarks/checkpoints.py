"""Checkpoints and reading a saved model, two ranks with a model in shards: ours, and the same by hand.

    python -m benchmarks.checkpoints [--rounds 5]

- How long a checkpoint holds up training, beside a synchronous torch.distributed.checkpoint.save of the same state:
  until the next step may begin, and then, when its gradients are there, until the optimiser may change weights.
- How long restoring takes, beside torch.distributed.checkpoint.load.
- How fast a rank reads its part of a saved model, beside plain reading of as many bytes of the same files, once from
  the disk (each file's cached pages are given up before) and once from memory; and its peak memory meanwhile.

Of two ranks the slower one counts.
"""

import argparse
import math
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from benchmarks.memory import llama, own_memory, write_teacher
from benchmarks.ranks import results_by_rank
from understudy.models.build import empty_model
from understudy.models.describe import describe
from understudy.models.facts import Description, Facts
from understudy.models.files import read_weights
from understudy.models.parts import local_tensor
from understudy.models.weight_files import weight_files
from understudy.parallel.apply import Spread
from understudy.parallel.checkpoint import Checkpoints
from understudy.recipe import ArchitectureModel, Degrees
from understudy.recipe.training import Optimizer as Section
from understudy.train.optimizers import build_optimizer

RANKS, WIDTH, BLOCKS, VOCABULARY = 2, 768, 8, 16384
"""Weights of about 300 MB in fp32, three times that with AdamW's state."""
BATCH = 4
"""Sequences of 128 tokens in the step after a checkpoint."""
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
CPU = torch.device("cpu")
EVERY = 0.005
"""Seconds between looks at a process's memory."""

Times = dict[str, float]


def described() -> Description:
    """The model."""
    facts: Facts = {"task": "causal-lm", "vocab_size": VOCABULARY, "eos_id": 0, "sequence_length": 128}
    section = ArchitectureModel.model_validate(llama(WIDTH, BLOCKS))
    return describe(section, facts, "teacher.model")


def slowest(act: Callable[[], object]) -> float:
    """Seconds that the slower rank takes, both having begun together."""
    dist.barrier()
    start = time.perf_counter()
    act()
    elapsed = torch.tensor(time.perf_counter() - start, dtype=torch.double)
    dist.all_reduce(elapsed, dist.ReduceOp.MAX)
    return elapsed.item()


def save_by_hand(model: nn.Module, optimizer: Optimizer, folder: Path) -> None:
    """A synchronous checkpoint."""
    weights, state = get_state_dict(model, optimizer, options=FLAT)
    save({"model": weights, "optimizer": state}, storage_writer=FileSystemWriter(folder))


def load_by_hand(model: nn.Module, optimizer: Optimizer, folder: Path) -> None:
    """The same one, back again."""
    weights, state = get_state_dict(model, optimizer, options=FLAT)
    state_dicts: dict[str, Any] = {"model": weights, "optimizer": state}
    load(state_dicts, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=state_dicts["model"], optim_state_dict=state_dicts["optimizer"], options=FLAT
    )


def find_gradients(model: nn.Module) -> None:
    """Of one small batch, and away with them."""
    tokens = torch.zeros(BATCH, 128, dtype=torch.int64)
    model(tokens).logits.square().mean().backward()
    model.zero_grad(set_to_none=True)


def forget(folder: Path) -> None:
    """Drop the system's cached pages of a saved model's files."""
    for path in weight_files(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_plainly(folder: Path, into: memoryview) -> None:
    """This rank's share of each file's bytes, one after the other, into memory that is there."""
    offset = 0
    for path in weight_files(folder):
        share = path.stat().st_size // RANKS
        with path.open("rb", buffering=0) as file:
            file.seek(dist.get_rank() * share)
            end = min(offset + share, len(into))
            while offset < end:
                offset += file.readinto(into[offset:end]) or 0


@contextmanager
def most_memory(times: Times) -> Iterator[None]:
    """Notes the most bytes of its own that the process got within."""
    before, ended = own_memory(), threading.Event()
    most = [before]

    def look() -> None:
        while not ended.wait(EVERY):
            most.append(max(most.pop(), own_memory()))

    watch = threading.Thread(target=look)
    watch.start()
    yield
    ended.set()
    watch.join()
    times["held"] = max(*most, own_memory()) - before


def read_model(folder: Path, times: Times) -> nn.Module:
    """A model in shards, with its weights, from the disk and again from memory."""
    spread = Spread(Degrees(dp_shard=RANKS), CPU, torch.float32)
    model = spread.over_ranks(empty_model(described(), "teacher.model"))
    with most_memory(times):
        forget(folder)
        times["read, from disk"] = slowest(lambda: read_weights(model, folder, CPU))
    times["part"] = sum(local_tensor(tensor).nbytes for tensor in model.state_dict().values())
    again = spread.over_ranks(empty_model(described(), "teacher.model"))
    times["read, from memory"] = slowest(lambda: read_weights(again, folder, CPU))
    plain = memoryview(bytearray(int(times["part"])))
    forget(folder)
    times["plainly, from disk"] = slowest(lambda: read_plainly(folder, plain))
    times["plainly, from memory"] = slowest(lambda: read_plainly(folder, plain))
    return model


def round_of(folder: Path) -> Times:
    """Seconds, and bytes, of everything once."""
    times: Times = {}
    model = read_model(folder / "model", times)
    optimizer = build_optimizer(list(model.parameters()), Section(), None)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        names: list[Any] = [name]
        dist.broadcast_object_list(names, 0)
        inside = Path(names[0])
        ours = Checkpoints(inside, model, optimizer)
        for step in (1, 2):  # the second time is that of every later one
            times["save, held up"] = slowest(partial(ours.save, step, "{}"))
            times["gradients meanwhile"] = slowest(partial(find_gradients, model))
            times["save, held up"] += slowest(ours.copied)
            ours.finish()
        times["gradients"] = slowest(partial(find_gradients, model))
        times["save by hand"] = slowest(lambda: save_by_hand(model, optimizer, inside / "by-hand"))
        times["check"] = slowest(ours.latest)
        loads = {
            "load": lambda: ours.load(2),
            "load by hand": lambda: load_by_hand(model, optimizer, inside / "by-hand"),
        }
        for method in [*loads, *reversed(loads)]:  # the first of them finds less memory that the process has
            times[method] = min(times.get(method, math.inf), slowest(loads[method]))
        dist.barrier()
    return times


def rounds_of(folder: Path, rounds: int) -> list[Times]:
    """A rank's rounds, after one that does not count but for memory."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    first, *later = [round_of(folder) for _ in range(rounds + 1)]
    peak = {"held": first["held"]}  # later ones find memory that the process has already
    dist.destroy_process_group()
    return [times | peak for times in later]


RATIOS = {
    "a checkpoint's stall / a synchronous save": ("save, held up", "save by hand"),
    "gradients while a checkpoint is copied and written / without": ("gradients meanwhile", "gradients"),
    "restoring / by hand": ("load", "load by hand"),
    "checking, then restoring / by hand": ("check, load", "load by hand"),
    "plain reading / reading a part, from disk": ("plainly, from disk", "read, from disk"),
    "plain reading / reading a part, from memory": ("plainly, from memory", "read, from memory"),
    "held at most while reading / the part": ("held", "part"),
}


def main() -> None:
    """Print the ratios, round by round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).absolute()
        write_teacher(folder / "model", described())
        rounds_measured: list[Times] = results_by_rank(RANKS, rounds_of, folder, rounds)[0]
    for times in rounds_measured:
        times["check, load"] = times["check"] + times["load"]
    print("| seconds | min / median |\n|---|---|")
    for name in (name for name in rounds_measured[0] if name not in ("held", "part")):
        print(f"| {name} | {columns([times[name] for times in rounds_measured])} |")
    print("\n| ratio | min / median |\n|---|---|")
    for name, (over, under) in RATIOS.items():
        print(f"| {name} | {columns([times[over] / times[under] for times in rounds_measured])} |")


def columns(values: list[float]) -> str:
    """Minimum and median."""
    return f"{min(values):.3f} / {statistics.median(values):.3f}"


if __name__ == "__main__":
    main()
