"""What real ranks hold, by torch's profiler: an account of its own, of every allocation of the CPU's allocator."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.ranks.train import jobs
from tests.unit.jobs.specs import training
from understudy.data.packing import write_packed
from understudy.jobs.specification import JobSpec
from understudy.models.describe import describe
from understudy.models.facts import Facts
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.planned import Planned
from understudy.plan.trace import Traced, traces
from understudy.recipe import Degrees, SavedModel, degrees

LABELS = [{"type": "labels", "weight": 1.0}]
DISTILL = [{"type": "labels", "weight": 0.5}, {"type": "logits", "weight": 0.5, "temperature": 2.0}]


def text_examples(folder: Path, vocabulary: int, length: int) -> tuple[Path, Facts]:
    """Random tokens, 64 windows of them."""
    folder.mkdir()
    tokens = np.random.default_rng(0).integers(0, vocabulary, 64 * length + 1)
    np.save(folder / "train.tokens.npy", tokens.astype(np.int32))
    facts: Facts = {"task": "causal-lm", "vocab_size": vocabulary, "eos_id": 0, "sequence_length": length}
    (folder / "examples.json").write_text(json.dumps(facts))
    return folder, facts


def packed_examples(folder: Path, vocabulary: int, length: int) -> tuple[Path, Facts]:
    """The same tokens as documents, two in each sequence."""
    text_examples(folder, vocabulary, length)
    np.save(folder / "train.offsets.npy", np.append(np.arange(0, 64 * length, 2 * length // 5), 64 * length + 1))
    write_packed(folder, "train", length)
    facts: Facts = {"task": "causal-lm", "vocab_size": vocabulary, "eos_id": 0, "sequence_length": length}
    facts["packing"] = "documents"
    (folder / "examples.json").write_text(json.dumps(facts))
    return folder, facts


def llama(width: int, layers: int, length: int) -> dict[str, Any]:
    return {
        "type": "llama",
        "config": {
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": length,
        },
    }


def measured(job: JobSpec) -> int:
    """A rank of a job, and the most bytes that it held in a step: of its steps but the first that with least, since
    frees that the profiler misses only add to it.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        jobs.train_ranks(job)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trace.json"
        profiled.export_chrome_trace(path)
        events = json.loads(Path(path).read_text())["traceEvents"]
    return min(list(_step_peaks(events))[1:])


def _step_peaks(events: list[dict[str, Any]]) -> Iterator[int]:
    """The most that was held between the ends of two steps of the optimiser."""
    ends = sorted(
        event["ts"] + event["dur"] for event in events if str(event.get("name", "")).startswith("Optimizer.step#")
    )[1:]  # the first makes the optimiser's state
    live_bytes: dict[int, int] = {}
    total = peak = 0
    for event in sorted((event for event in events if event.get("name") == "[memory]"), key=lambda event: event["ts"]):
        while ends and event["ts"] > ends[0]:
            ends.pop(0)
            yield peak
            peak = total
        size, address = event["args"]["Bytes"], event["args"]["Addr"]
        # Events of threads come out of order now and then: an address may be given again before it is told that it was
        # freed. Memory from before the profiler is freed without an entry.
        if size > 0:
            total += size - live_bytes.get(address, 0)
            live_bytes[address] = size
        elif live_bytes.get(address) == -size:
            total -= live_bytes.pop(address)
        peak = max(peak, total)


def planned_peak(job: JobSpec, facts: Facts) -> int:
    """The planned peak of the rank with the most memory."""
    return max(traced.peak.bytes for traced in planned(job, facts))


def planned(job: JobSpec, facts: Facts) -> list[Traced]:
    """The traces of a rank of each stage, on a CPU in fp32."""
    return planned_on("cpu", job, facts)


def planned_on(device: str, job: JobSpec, facts: Facts) -> list[Traced]:
    """The same on a CPU in fp32, or on a GPU in bf16."""
    work, processes = training(job), job.resources.processes
    strategy = work.train.strategy
    mesh_degrees = strategy if isinstance(strategy, Degrees) else degrees(strategy, 1, processes)
    models = {name: taught.model for name, taught in work.teachers.items() if isinstance(taught, SavedModel)}
    teachers = {name: describe(model, facts, "teacher.model") for name, model in models.items()}
    model = describe(work.model, facts, "student.model")
    described = Planned(work, model, teachers, PlaceholderExamples(facts, 64))
    return traces(described, mesh_degrees, device, torch.bfloat16 if device == "cuda" else torch.float32)


def case(
    folder: Path,
    examples: Path,
    student: dict[str, Any],
    teacher: JobSpec | None,
    placement: tuple[Any, int],
    **train: Any,
) -> JobSpec:
    """A training of a few steps."""
    strategy, processes = placement
    changes: dict[str, Any] = {"objectives": LABELS}
    if teacher:
        changes = {"objectives": DISTILL, "teacher": str(teacher.output), "teacher_model": training(teacher).model}
    settings = {"steps": 5, "batch_size": 16, "strategy": strategy, "checkpoint_every": 100, **train}
    return jobs.spec(folder, examples, student, processes, train=settings, **changes)
