"""The memory that each technique saves, the time that it costs, and how far the loss is off.

python -m benchmarks.savers [--rounds 3]

A small Llama learns from a larger one over two processes on a CPU. Bytes are the most that the rank with most holds in
a step, by torch's profiler, which enters every allocation of the CPU's allocator. Times are medians over steps, beside
the plain training's of the same round. The loss is that after all steps, beside the plain training's.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.ranks.plan.measured import case, llama, measured, text_examples
from tests.ranks.pool import Ranks
from tests.ranks.train.jobs import TRAIN, spec, train_ranks
from tests.unit.jobs.specs import training
from understudy.jobs.specification import JobSpec

LENGTH, VOCABULARY, STEPS, LEFT_OUT = 256, 4096, 8, 3
"""Of the steps the first are left out of times: they make the optimiser's state, and compile."""
MIB = 2**20


@dataclass(frozen=True)
class Technique:
    """A technique, beside the plain training: ddp, fp32, nothing computed again."""

    name: str
    train: dict[str, Any] = field(default_factory=dict)
    strategy: str = "ddp"
    changes: dict[str, Any] = field(default_factory=dict)
    logits_at_a_time: int = 2**25
    """Logits that a loss holds at a time; 2**25 are all of them."""
    starts_trained: bool = False


PLAIN = Technique("plain")
ADAMW: Any = TRAIN["optimizer"]
LORA = {"rank": 8, "modules": ["q_proj", "v_proj"]}
TECHNIQUES = [
    PLAIN,
    Technique("losses in pieces, of 512 positions", logits_at_a_time=512 * VOCABULARY),
    Technique("full checkpointing", {"activation_checkpointing": "full"}),
    Technique("selective checkpointing", {"activation_checkpointing": "selective"}),
    Technique("gradient accumulation, 4 parts", {"gradient_accumulation_steps": 4}),
    Technique("bf16", {"precision": "bf16"}),
    Technique("fp16", {"precision": "fp16"}),
    Technique("teacher in bf16", changes={"teacher_precision": "bf16"}),
    Technique("teacher in int8", changes={"teacher_precision": "int8"}),
    Technique("teacher in nf4", changes={"teacher_precision": "nf4"}),
    Technique("AdamW in eight bits", {"optimizer": {**ADAMW, "name": "adamw8bit"}}),
    Technique("zero1", strategy="zero1"),
    Technique("zero2", strategy="zero2"),
    Technique("fsdp", strategy="fsdp"),
    Technique("fsdp, full checkpointing", {"activation_checkpointing": "full"}, "fsdp"),
    Technique("fsdp, parameters offloaded", {"offload": ["parameters"]}, "fsdp"),
    Technique("activations offloaded", {"offload": ["activations"]}),
    Technique("LoRA, rank 8", {"lora": LORA}, starts_trained=True),
    Technique("LoRA, rank 8, on nf4", {"lora": {**LORA, "frozen_precision": "nf4"}}, starts_trained=True),
    Technique("compile", {"compile": True}),
]


def peak_memory(job: JobSpec, logits: int) -> int:
    """A rank's most bytes in a step."""
    with patch("understudy.models.outputs.LOGITS_AT_A_TIME", logits):
        return measured(job)


def seconds(job: JobSpec, logits: int) -> float:
    """A rank's median step."""
    from understudy.train import loop

    step, ends = loop._step, list[float]()

    def timed(*arguments: Any) -> Any:
        output = step(*arguments)
        ends.append(time.perf_counter())
        return output

    with patch("understudy.models.outputs.LOGITS_AT_A_TIME", logits), patch.object(loop, "_step", timed):
        train_ranks(job)
    return statistics.median(end - start for start, end in zip(ends[LEFT_OUT:], ends[LEFT_OUT + 1 :], strict=False))


def losses(job: JobSpec) -> list[float]:
    """Of every step."""
    return [point["loss"] for point in json.loads((job.output / "history.json").read_text())]


class Bench:
    """Trainings in a folder, over a pool of ranks."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        self._folder, self._ranks, self._number = folder, ranks, 0
        self._examples, _ = text_examples(folder / "examples", VOCABULARY, LENGTH)
        self._teacher = spec(folder / "teacher", self._examples, llama(384, 6, LENGTH), train={"steps": 1})
        self._trained = spec(folder / "trained", self._examples, llama(256, 4, LENGTH), train={"steps": 1})
        for job in (self._teacher, self._trained):
            ranks.run(1, train_ranks, job)

    def job(self, technique: Technique) -> JobSpec:
        """A training of its own."""
        self._number += 1
        settings = {"steps": STEPS, **technique.train}
        plain_spec = case(
            self._folder / str(self._number),
            self._examples,
            llama(256, 4, LENGTH),
            self._teacher,
            (technique.strategy, 2),
            **settings,
        )
        changes = {**technique.changes, **({"initial": str(self._trained.output)} if technique.starts_trained else {})}
        if not changes:
            return plain_spec
        work = training(plain_spec)
        taught = {"objectives": work.objectives, "teacher": str(self._teacher.output)}
        return spec(
            self._folder / f"{self._number}-changed",
            self._examples,
            llama(256, 4, LENGTH),
            2,
            train=work.train.model_dump(),
            teacher_model=llama(384, 6, LENGTH),
            **taught,
            **changes,
        )

    def bytes(self, technique: Technique) -> int:
        """The peak memory in a step of the rank with the highest peak."""
        peaks: list[int] = self._ranks.run(2, peak_memory, self.job(technique), technique.logits_at_a_time)
        return max(peaks)

    def round(self) -> dict[str, tuple[float, float]]:
        """Of each technique a step's seconds and the last loss."""
        results = {}
        for technique in TECHNIQUES:
            job = self.job(technique)
            slowest = max(self._ranks.run(2, seconds, job, technique.logits_at_a_time))
            results[technique.name] = slowest, losses(job)[-1]
        return results


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    ranks = Ranks(2)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), ranks)
        sizes = {technique.name: bench.bytes(technique) for technique in TECHNIQUES}
        report(sizes, [bench.round() for _ in range(rounds)])
    ranks.close()


def report(sizes: dict[str, int], rounds: list[dict[str, tuple[float, float]]]) -> None:
    """A row for each technique."""
    print("| technique | peak, MiB | saved | times the plain step, min / median | loss after 8 steps | off by |")
    print("|---|---|---|---|---|---|")
    plain, usual = sizes["plain"], rounds[0]["plain"][1]
    for technique in TECHNIQUES:
        ratios = [results_of_round[technique.name][0] / results_of_round["plain"][0] for results_of_round in rounds]
        loss, off = rounds[0][technique.name][1], "another start" if technique.starts_trained else ""
        print(
            f"| {technique.name} | {sizes[technique.name] / MIB:.1f} | {1 - sizes[technique.name] / plain:.0%} | "
            f"{min(ratios):.2f} / {statistics.median(ratios):.2f} | {loss:.5f} | {off or f'{loss / usual - 1:+.1e}'} |"
        )
    seconds = [results_of_round["plain"][0] for results_of_round in rounds]
    print(f"the plain step: {min(seconds):.2f} s at least, {statistics.median(seconds):.2f} s by the median")


if __name__ == "__main__":
    main()
