"""Peak memory of each rank, beside its share, from fetching a large teacher to registering its large student.

python -m benchmarks.memory [--blocks 22 --teacher-blocks 46 --width 2048]

The defaults are Llamas of 1.1 and 2.2 billion parameters: 20 GB of memory and 30 GB of disk. One process fetches the
teacher, as a hub has it in bf16, and one registers the student. For training and measuring both are spread by fsdp over
four ranks on a CPU; beside the student the teacher is kept in bf16. SGD without momentum trains, since Adam's state of
1.1 billion does not fit beside the rest there. The process's own memory (RssAnon) counts. In brackets are pages
of files that are mapped, which are the system's to take back.
"""

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.ranks import results_by_rank
from tests.ranks.plan.measured import DISTILL, text_examples
from tests.ranks.train.jobs import spec
from tests.registry.submitted import Pipeline
from tests.unit.jobs.specs import evaluation_spec, training, with_resources
from understudy.agent.evaluation import evaluate
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.agent.surroundings import Surroundings
from understudy.agent.training import train
from understudy.jobs.payload import Evaluation
from understudy.jobs.specification import JobSpec
from understudy.models import pretrained
from understudy.models.build import uninitialized_model
from understudy.models.describe import describe
from understudy.models.facts import Description, Facts
from understudy.models.files import save_model
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.planned import Planned
from understudy.plan.trace import traces
from understudy.recipe import ArchitectureModel, Degrees, PretrainedModel
from understudy.registry.server import tracking_uri

RANKS, LENGTH, VOCABULARY, BATCH = 4, 128, 32000, 4
EVERY = 0.02
"""Seconds between looks at a process's memory."""
GIB = 2**30
IMPORTED = (
    "mlflow.pyfunc",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "transformers.models.llama.modeling_llama",
)

Held = tuple[int, int]
"""Bytes of a process that are no file's, and of files that it has mapped."""


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


def write_teacher(folder: Path, description: Description, kind: torch.dtype = torch.float32) -> None:
    """Random weights of a saved model."""
    folder.mkdir()
    shapes = {
        name: tensor.shape for name, tensor in uninitialized_model(description, "teacher.model").state_dict().items()
    }
    save_model(folder, {name: torch.randn(shape, dtype=kind) / 50 for name, shape in shapes.items()}, description)


def write_test_split(examples: Path, facts: Facts) -> None:
    """Two documents for each rank, of as many tokens as a sequence has."""
    documents = 2 * RANKS
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, documents * LENGTH)
    np.save(examples / "test.tokens.npy", tokens.astype(np.int32))
    np.save(examples / "test.offsets.npy", np.arange(documents + 1) * LENGTH)
    np.save(examples / "test.bytes.npy", np.full(documents, 4 * LENGTH))
    counts = {"train": 1, "validation": 0, "test": documents}
    (examples / "examples.json").write_text(json.dumps({**facts, "counts": counts, "skipped": 0}))


def memory() -> Held:
    """The process's memory now."""
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Rss")]
    sizes = {line[0]: int(line[1]) * 1024 for line in lines}
    return sizes["RssAnon:"] + sizes["RssShmem:"], sizes["RssFile:"]


def own_memory() -> int:
    """Bytes of the process's memory that are no file's."""
    return memory()[0]


class Watch:
    """The most memory that the process took in each phase, beyond its memory at first."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.most: dict[str, Held] = {}
        self._before = memory()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            now = tuple(is_now - before for is_now, before in zip(memory(), self._before, strict=True))
            most = self.most.get(self.phase, (0, 0))
            self.most[self.phase] = max(most[0], now[0]), max(most[1], now[1])
            time.sleep(EVERY)


class Heartbeat(HeartbeatWriter):
    """A heartbeat whose phases are a watch's."""

    watch: Watch
    prefix = ""

    def __call__(self, phase: str, step: int = -1) -> None:
        """Write the rank's phase and step."""
        self.watch.phase = self.prefix + phase
        super().__call__(phase, step)


def import_all() -> None:
    """The memory of imports is not a model's."""
    for name in IMPORTED:
        import_module(name)


def rank_of(job: JobSpec) -> dict[str, Held]:
    """A rank of a training, or of a measuring; its most bytes in each phase."""
    import_all()
    heartbeat = Heartbeat(job, int(os.environ["RANK"]))
    heartbeat.watch = Watch("")
    if isinstance(job.payload, Evaluation):
        heartbeat.prefix = "evaluating: "
        evaluate(job, job.payload, Surroundings(job, heartbeat))
    else:
        train(job, training(job), Surroundings(job, heartbeat))
    return heartbeat.watch.most


def write_published(folder: Path, description: Description) -> dict[str, Held]:
    """A model as a hub has it, in a process of its own, whose memory does not count."""
    write_teacher(folder, description, torch.bfloat16)
    return {}


def fetch(source: Path, examples: Path, folder: Path) -> dict[str, Held]:
    """Fetch a hub's model."""
    import_all()
    folder.mkdir()
    watch = Watch("fetching")
    pretrained.fetch(PretrainedModel(pretrained=str(source)), examples, folder, "teacher.model")
    return watch.most


def register(folder: Path, model: Path) -> dict[str, Held]:
    """Register a student in a registry on this machine."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    import_all()
    pipeline = Pipeline(folder, tracking_uri(folder / "home", None))
    staged = pipeline.store.folder / "work" / "student"
    staged.mkdir()
    for path in model.iterdir():
        os.link(path, staged / path.name)
    digest = pipeline.store.objects.publish(staged, "model")
    pipeline.register(weights=b"another")  # the first registration's imports do not count
    watch = Watch("registering")
    pipeline.register(pipeline.new_run(), student=digest)
    return watch.most


def size_of(description: Description) -> int:
    """Bytes of a model's weights in fp32."""
    return sum(tensor.nbytes for tensor in uninitialized_model(description, "model").parameters())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=22)
    parser.add_argument("--teacher-blocks", type=int, default=46)
    parser.add_argument("--width", type=int, default=2048)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        examples, facts = text_examples(folder / "examples", VOCABULARY, LENGTH)
        write_test_split(examples, facts)
        sections = llama(options.width, options.blocks), llama(options.width, options.teacher_blocks)
        report(folder, examples, facts, *sections)


def report(folder: Path, examples: Path, facts: Facts, student: dict[str, Any], teacher: dict[str, Any]) -> None:
    """Run everything, and print the memory held."""
    folder = folder.absolute()
    job = training_of(folder, examples.absolute(), student)
    work = training(job)
    teacher_model = ArchitectureModel.model_validate(teacher)
    kinds = describe(work.model, facts, "student.model"), describe(teacher_model, facts, "teacher.model")
    student_size, taught = size_of(kinds[0]), size_of(kinds[1]) // 2
    in_bf16 = replace(work, teacher_precision="bf16")
    planned = Planned(in_bf16, kinds[0], {"teacher": kinds[1]}, PlaceholderExamples(facts, 64))
    planned_memory = traces(planned, Degrees(dp_shard=RANKS), "cpu", torch.float32)[0]
    print(f"student {student_size / GIB:.2f} GiB, teacher {taught / GIB:.2f} GiB in bf16; GiB, and of mapped files:")
    share, in_fp32 = (student_size + taught) / RANKS, (student_size + 2 * taught) / RANKS
    resident, peak = planned_memory.resident, planned_memory.peak.bytes
    print(
        f"a rank's share of both {share / GIB:.2f}, in fp32 {in_fp32 / GIB:.2f}; "
        f"planned: between steps {resident / GIB:.2f}, at the peak of a step {peak / GIB:.2f}"
    )
    print("| phase |" + "".join(f" rank {rank} |" for rank in range(RANKS)) + "\n|---|" + "---|" * RANKS)
    results_by_rank(1, write_published, folder / "published", kinds[1])
    show(results_by_rank(1, fetch, folder / "published", examples, folder / "teacher"))
    shutil.rmtree(folder / "published")
    show(results_by_rank(RANKS, rank_of, job))
    show(results_by_rank(RANKS, rank_of, measuring(folder, job)))
    show(results_by_rank(1, register, folder / "registry", job.output))


def training_of(folder: Path, examples: Path, student: dict[str, Any]) -> JobSpec:
    """The student's training."""
    settings = {
        "steps": 2,
        "batch_size": BATCH,
        "strategy": "fsdp",
        "optimizer": {"name": "sgd", "momentum": 0.0, "learning_rate": 0.01},
        "activation_checkpointing": "full",
    }
    return spec(
        folder / "job",
        examples,
        student,
        RANKS,
        train=settings,
        teachers={"teacher": {"folder": str(folder / "teacher"), "model": {"pretrained": str(folder / "published")}}},
        teacher_precision="bf16",
        objectives=DISTILL,
    )


def measuring(folder: Path, job: JobSpec) -> JobSpec:
    """The measuring of teacher and student in shards."""
    work = training(job)
    recipe = {
        "name": "memory",
        "task": "causal-lm",
        "data": {"source": {"type": "python-docs"}, "text": {"sequence_length": LENGTH}},
        "teacher": {"model": {"pretrained": str(folder / "published")}},
        "student": {"model": work.model.model_dump(mode="json"), "train": {"steps": 1}},
        "evaluate": {"batch_size": 1, "strategy": "fsdp", "latency": {"repeats": 1}},
        "resources": {"distill": {"threads": 1, "device": "cpu"}},
    }
    (folder / "measuring").mkdir()
    models = {"teacher": str(folder / "teacher"), "student": str(job.output)}
    evaluation = evaluation_spec(folder / "measuring", examples=work.examples, models=models, recipe=recipe)
    return with_resources(evaluation, processes=RANKS)


def show(held_by_rank: dict[int, dict[str, Held]]) -> None:
    """Rows of the table."""
    for phase in held_by_rank[0]:
        if phase:
            cells = [held_by_rank[rank].get(phase, (0, 0)) for rank in sorted(held_by_rank)]
            print(
                f"| {phase} |"
                + "".join(f" {anonymous / GIB:.2f} ({mapped / GIB:.2f}) |" for anonymous, mapped in cells),
                flush=True,
            )


if __name__ == "__main__":
    main()
