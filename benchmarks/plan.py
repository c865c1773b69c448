"""The memory that `understudy plan` expects of ranks beside their real memory, for models and strategies on CPU.

python -m benchmarks.plan [--vocabulary 4096]

The measure is torch's profiler, which enters every allocation of the CPU's allocator. The rank that holds most counts.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.ranks.plan.measured import case, llama, measured, planned_peak, text_examples
from tests.ranks.pool import Ranks
from tests.ranks.train.jobs import spec, train_ranks

LENGTH = 256
TWICE, FOUR = {"gradient_accumulation_steps": 2}, {"gradient_accumulation_steps": 4}
WAYS: list[tuple[str, Any, int, dict[str, Any], bool]] = [
    ("single", "single", 1, {}, False),
    ("single, 2 parts", "single", 1, TWICE, True),
    ("ddp", "ddp", 2, TWICE, True),
    ("zero1", "zero1", 2, TWICE, True),
    ("zero2", "zero2", 2, {}, True),
    ("fsdp", "fsdp", 2, TWICE, True),
    ("fsdp of 4", "fsdp", 4, TWICE, False),
    ("fsdp, blocks computed again", "fsdp", 2, {"activation_checkpointing": "full"}, True),
    ("hsdp", "hsdp", 4, {}, True),
    ("tp", "tp", 2, {}, True),
    ("fsdp x tp", {"dp_shard": 2, "tp": 2}, 4, {}, True),
    ("fsdp x cp", {"dp_shard": 2, "cp": 2}, 4, {}, True),
    ("pp", "pp", 2, FOUR, True),
    ("pp x fsdp", {"pp": 2, "dp_shard": 2}, 4, FOUR, True),
]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=4096)
    vocabulary = parser.parse_args().vocabulary
    ranks = Ranks(4)
    errors = []
    print("| strategy | learns from | planned, MiB | measured, MiB | error |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        examples, facts = text_examples(Path(folder) / "examples", vocabulary, LENGTH)
        teacher = spec(Path(folder) / "teacher", examples, llama(384, 6, LENGTH), train={"steps": 1})
        ranks.run(1, train_ranks, teacher)
        for number, (name, strategy, processes, train, taught) in enumerate(WAYS):
            student, teacher_model = llama(256, 4, LENGTH), teacher if taught else None
            job = case(Path(folder) / str(number), examples, student, teacher_model, (strategy, processes), **train)
            peak, planned = max(ranks.run(processes, measured, job)), planned_peak(job, facts)
            errors.append(abs(planned / peak - 1))
            source = "labels and teacher" if taught else "labels"
            print(
                f"| {name} | {source} | {planned / 2**20:.1f} | {peak / 2**20:.1f} | {planned / peak - 1:+.1%} |",
                flush=True,
            )
    print(f"mean error {statistics.mean(errors):.1%}, worst {max(errors):.1%}")
    ranks.close()


if __name__ == "__main__":
    main()
