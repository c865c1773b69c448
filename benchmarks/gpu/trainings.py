"""Trainings on one GPU: memory beside the plan, milliseconds of a step, tokens a second and model FLOP utilisation.

    python -m benchmarks.gpu.trainings [--hardware H100]

Each training runs in a process of its own, of twelve steps. Memory is max_memory_allocated, and the time of a step the
median, both from the fifth step on. torchtitan's model, loss and optimiser, where they are installed, do the same.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.clock import Clock, alone_here, our_training
from benchmarks.gpu.sizes import Model, llama
from benchmarks.peer_losses import batches, initial_net, titan_model, titan_optimizer
from tests.ranks.plan.measured import DISTILL, LABELS, planned_on, text_examples
from tests.ranks.train import jobs
from tests.unit.jobs.specs import training
from understudy.data.loader import IGNORED
from understudy.jobs.specification import JobSpec
from understudy.plan.hardware import TERA, table

STEPS = 12
VOCABULARY = 32_000

SMALL, TEACHER, LENGTH = llama(1024, 8, 8, 4096, 1024), llama(1536, 8, 12, 6144, 1024), 1024
LARGE, LONG = llama(4096, 2, 32, 14336, 2048), 2048  # blocks of an 8B model
LORA = {"rank": 16, "alpha": 32, "modules": ["*_proj"]}
EIGHT_BITS = {"name": "adamw8bit", "learning_rate": 0.003, "weight_decay": 0.01}
Case = tuple[str, Model, dict[str, Any], str | None]
CASES: list[Case] = [
    ("bf16", SMALL, {}, None),
    ("fp8", SMALL, {"precision": "fp8"}, None),
    ("bf16, full checkpointing", SMALL, {"activation_checkpointing": "full"}, None),
    ("fp8, full checkpointing", SMALL, {"precision": "fp8", "activation_checkpointing": "full"}, None),
    ("bf16, AdamW in eight bits", SMALL, {"optimizer": EIGHT_BITS}, None),
    ("bf16, LoRA", SMALL, {"lora": LORA}, None),
    ("bf16, LoRA on nf4", SMALL, {"lora": {**LORA, "frozen_precision": "nf4"}}, None),
    ("bf16, distilling", SMALL, {}, "fp32"),
    ("bf16, distilling, teacher in bf16", SMALL, {}, "bf16"),
    ("bf16, distilling, teacher in int8", SMALL, {}, "int8"),
    ("bf16, distilling, teacher in nf4", SMALL, {}, "nf4"),
    ("bf16, compiled", SMALL, {"compile": True}, None),
    ("fp8, compiled", SMALL, {"precision": "fp8", "compile": True}, None),
    ("8B's blocks: bf16", LARGE, {}, None),
    ("8B's blocks: fp8", LARGE, {"precision": "fp8"}, None),
    ("8B's blocks: bf16, compiled", LARGE, {"compile": True}, None),
    ("8B's blocks: fp8, compiled", LARGE, {"precision": "fp8", "compile": True}, None),
]
TITAN = {"torchtitan: bf16": "bf16", "torchtitan, 8B's blocks: bf16": "8B's blocks: bf16"}
"""Its trainings, by that of ours which does the same."""


def job_of(folder: Path, case: Case) -> JobSpec:
    """A case's training, in a folder with the examples, the teacher, and the weights that adapters begin with."""
    name, model, train, teacher = case
    length, batch = (LONG, 4) if model is LARGE else (LENGTH, 8)
    changes: dict[str, Any] = {"objectives": LABELS, "device": "cuda"}
    if teacher:
        changes |= {"objectives": DISTILL, "teacher": str(folder / "teacher" / "output"), "teacher_model": TEACHER}
        changes |= {"teacher_precision": teacher}
    if "lora" in train:
        changes["initial"] = str(folder / "base" / "output")
    settings = {"steps": STEPS, "batch_size": batch, "precision": "bf16", "checkpoint_every": 100, **train}
    return jobs.spec(folder / name.replace(" ", "-"), folder / str(length), model, train=settings, **changes)


def titan_training(job: JobSpec) -> dict[str, float]:
    """What torchtitan's parts take for the same, in the order of its train_step()."""
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.distributed.utils import clip_grad_norm_

    work, clock = training(job), Clock()
    model = titan_model(initial_net(work)).cuda()
    optimizers = titan_optimizer(work.train, norms_decay=False).build(model_parts=[model])
    loss_of = CrossEntropyLoss.Config().build()
    for inputs, labels in batches(work, STEPS):
        tokens_on_gpu, targets = inputs.cuda(), labels.cuda()
        optimizers.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss, _ = loss_of(model(tokens_on_gpu), targets, (targets != IGNORED).sum())
        loss.backward()
        clip_grad_norm_(model.parameters(), work.train.max_grad_norm, foreach=True)
        optimizers.step()
        clock()
    return {**clock.measurements, "loss": loss.item()}


def row(folder: Path, name: str, hardware: str) -> str:
    """A line of the table: one case, in this process."""
    case = next(case for case in CASES if case[0] == TITAN.get(name, name))
    job = job_of(folder, case)
    measured = titan_training(job) if name in TITAN else our_training(job)
    facts = json.loads((folder / str(LONG if case[1] is LARGE else LENGTH) / "examples.json").read_text())
    planned = planned_on("cuda", job, facts)[0]
    seconds, tokens = measured["seconds"], training(job).train.batch_size * facts["sequence_length"]
    used = planned.flops / seconds / (table()[hardware].tflops["bf16"] * TERA)
    ahead = "-" if name in TITAN else f"{planned.peak.bytes / 2**20:,.0f}"
    error = "-" if name in TITAN else f"{planned.peak.bytes / measured['bytes'] - 1:+.1%}"
    values = f"{seconds * 1e3:.0f} | {tokens / seconds:,.0f} | {used:.0%} | {ahead} | {measured['bytes'] / 2**20:,.0f}"
    return f"| {name} | {values} | {error} | {measured['loss']:.4f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hardware", default="H100", help="its name in the table of hardware")
    parser.add_argument("--case", nargs=2, metavar=("FOLDER", "NAME"), help="one row, where all is prepared")
    options = parser.parse_args()
    if options.case:
        print(row(Path(options.case[0]), options.case[1], options.hardware))
        return
    with tempfile.TemporaryDirectory() as folder:
        for length in (LENGTH, LONG):
            text_examples(Path(folder) / str(length), VOCABULARY, length)
        alone_here()
        for name, model in (("teacher", TEACHER), ("base", SMALL)):
            jobs.train_ranks(job_of(Path(folder), (name, model, {"steps": 1}, None)))
        print("| training | step, ms | tokens a second | MFU | planned, MiB | measured, MiB | error | last loss |")
        print("|---" * 8 + "|", flush=True)
        for name in [case[0] for case in CASES] + (list(TITAN) if find_spec("torchtitan") else []):
            command = [
                sys.executable,
                "-m",
                "benchmarks.gpu.trainings",
                "--hardware",
                options.hardware,
                "--case",
                folder,
                name,
            ]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            print(
                ended.stdout or f"| {name} | failed: {ended.stderr[-1500:]} |",
                end="" if ended.stdout else "\n",
                flush=True,
            )


if __name__ == "__main__":
    main()
