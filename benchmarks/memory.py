"""Peak memory of each rank while it loads, trains and saves, beside its share: a large student, a larger teacher.

python -m benchmarks.memory [--blocks 22 --teacher-blocks 46 --width 2048]

The defaults are Llamas of 1.1 and 2.2 billion parameters: 25 GB of memory and 30 GB of disk. Both are spread by fsdp
over four ranks on a CPU; the teacher is kept in bf16. SGD without momentum trains, since Adam's state of 1.1 billion
does not fit beside the rest there. What counts is the process's own memory (RssAnon): files read by slice are mapped.
"""

import argparse
import os
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.ranks import found_by_ranks
from tests.jobs.specs import training
from tests.plan.measured import DISTILL, text_examples
from tests.train.jobs import spec
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.agent.surroundings import Surroundings
from understudy.agent.training import train
from understudy.jobs.specification import JobSpec
from understudy.models.build import undrawn_model
from understudy.models.describe import describe
from understudy.models.facts import Description, Facts
from understudy.models.files import save_model
from understudy.plan.imagined import Imagined
from understudy.plan.trace import Planned, traces
from understudy.recipe import Degrees

RANKS, LENGTH, VOCABULARY, BATCH = 4, 128, 32000, 4
EVERY = 0.02
"""Seconds between looks at a process's memory."""
GIB = 2**30


def llama(width: int, blocks: int) -> dict[str, Any]:
    """A model's section of a recipe, of TinyLlama's proportions."""
    heads = max(4, width // 64)
    config = {"hidden_size": width, "intermediate_size": width * 11 // 4, "num_hidden_layers": blocks}
    return {
        "type": "llama",
        "config": {
            **config,
            "num_attention_heads": heads,
            "num_key_value_heads": 4,
            "max_position_embeddings": LENGTH,
        },
    }


def write_teacher(folder: Path, description: Description) -> None:
    """Random weights of a saved model."""
    folder.mkdir()
    shapes = {name: tensor.shape for name, tensor in undrawn_model(description, "teacher.model").state_dict().items()}
    save_model(folder, {name: torch.randn(shape) / 50 for name, shape in shapes.items()}, description)


def own_memory() -> int:
    """Bytes of the process's memory that are no file's."""
    status = Path("/proc/self/status").read_text()
    return sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(("RssAnon", "RssShmem")))


class Watch(HeartbeatWriter):
    """A heartbeat that knows how much memory each phase took."""

    def __init__(self, job: JobSpec, rank: int) -> None:
        super().__init__(job, rank)
        self.most: dict[str, int] = defaultdict(int)
        self.before = own_memory()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.most[self._phase] = max(self.most[self._phase], own_memory() - self.before)
            time.sleep(EVERY)


def import_all() -> None:
    """Imports are no part of what a model takes."""
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401


def rank_of(job: JobSpec) -> dict[str, int]:
    """A rank of the training; its most bytes in each phase."""
    import_all()
    watch = Watch(job, int(os.environ["RANK"]))
    train(job, training(job), Surroundings(job, watch))
    return dict(watch.most)


def size_of(description: Description) -> int:
    """Bytes of a model's weights in fp32."""
    return sum(tensor.nbytes for tensor in undrawn_model(description, "model").parameters())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=22)
    parser.add_argument("--teacher-blocks", type=int, default=46)
    parser.add_argument("--width", type=int, default=2048)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        examples, facts = text_examples(folder / "examples", VOCABULARY, LENGTH)
        sections = llama(given.width, given.blocks), llama(given.width, given.teacher_blocks)
        report(folder, examples, facts, *sections)


def report(folder: Path, examples: Path, facts: Facts, student: dict[str, Any], teacher: dict[str, Any]) -> None:
    """Train, and say what was held."""
    settings = {
        "steps": 2,
        "batch_size": BATCH,
        "strategy": "fsdp",
        "optimizer": {"name": "sgd", "momentum": 0.0, "learning_rate": 0.01},
        "activation_checkpointing": "full",
    }
    job = spec(
        folder / "job",
        examples.absolute(),
        student,
        RANKS,
        train=settings,
        teacher=str((folder / "teacher").absolute()),
        teacher_model=teacher,
        teacher_precision="bf16",
        objectives=DISTILL,
    )
    work = training(job)
    assert work.teacher_model
    kinds = describe(work.model, facts, "student.model"), describe(work.teacher_model, facts, "teacher.model")
    write_teacher(folder / "teacher", kinds[1])
    own, taught = size_of(kinds[0]), size_of(kinds[1]) // 2
    planned = Planned(*kinds, work.train, work.objectives, Imagined(facts, 64), "student.train", "bf16")
    said = traces(planned, Degrees(dp_shard=RANKS), "cpu", torch.float32)[0]
    held: dict[int, dict[str, int]] = found_by_ranks(RANKS, rank_of, job)
    print(f"student {own / GIB:.2f} GiB, teacher {taught / GIB:.2f} GiB in bf16; of each rank, GiB:")
    print(
        f"share of both {(own + taught) / RANKS / GIB:.2f}; planned: between steps {said.kept / GIB:.2f}, "
        f"at the peak of a step {said.peak.bytes / GIB:.2f}"
    )
    print("| phase |" + "".join(f" rank {rank} |" for rank in sorted(held)))
    print("|---|" + "---|" * RANKS)
    for phase in held[0]:
        if phase:
            print(f"| {phase} |" + "".join(f" {held[rank].get(phase, 0) / GIB:.2f} |" for rank in sorted(held)))


if __name__ == "__main__":
    main()
