"""Lower bounds of a job's memory and disk, compared with real ranks."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ranks.plan.measured import case, llama, text_examples
from tests.ranks.train.jobs import spec, train_ranks
from tests.unit.jobs.specs import training, training_settings
from understudy.jobs.specification import JobSpec
from understudy.models.describe import describe
from understudy.models.weight_files import weight_bytes
from understudy.parallel.checkpoint import RETAINED
from understudy.plan.lower_bounds import AT_ONCE, Held, evaluation_memory, saves, training_disk, training_memory
from understudy.plan.weights import weights_of
from understudy.recipe import Degrees, Train, degrees

GIB = 2**30
LENGTH = 64


def held_bytes(job: JobSpec) -> int:
    """The growth of a rank's process to its peak, by the kernel's account."""
    import ctypes
    import gc

    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = status("VmRSS:")
    Path("/proc/self/clear_refs").write_text("5")  # the most counts from here on
    train_ranks(job)
    return status("VmHWM:") - before


ROWS: list[Any] = [
    ("ddp", 2, {}, True),
    pytest.param("single", 1, {}, False, marks=pytest.mark.full),
    pytest.param("fsdp", 2, {}, True, marks=pytest.mark.full),
    pytest.param("tp", 2, {}, False, marks=pytest.mark.full),
    pytest.param("pp", 2, {"gradient_accumulation_steps": 2}, True, marks=pytest.mark.full),
    pytest.param("ddp", 2, {"diloco": {"every": 2}, "average": 0.9}, False, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("strategy", "processes", "train", "has_teacher"), ROWS)
def test_ranks_hold_and_write_at_least_what_is_certain(
    ranks: Any, tmp_path: Path, strategy: str, processes: int, train: dict[str, Any], has_teacher: bool
) -> None:
    """With 7 million weights, which take many times the process's other memory."""
    examples, facts = text_examples(tmp_path / "examples", 2048, LENGTH)
    ranks.run(
        processes, train_ranks, case(tmp_path / "small", examples, llama(64, 1, LENGTH), None, ("ddp", processes))
    )
    teacher = spec(tmp_path / "teacher", examples, llama(512, 2, LENGTH), train={"steps": 1}) if has_teacher else None
    if teacher:
        ranks.run(1, train_ranks, teacher)
    job = case(tmp_path / "job", examples, llama(512, 2, LENGTH), teacher, (strategy, processes), **train)
    resident = sum(ranks.run(processes, held_bytes, job))
    work = training(job)
    model = weights_of(describe(work.model, facts, "student.model"), "student.model").parameters
    weights = Held(model, sum(weight_bytes(Path(teacher.folder)) for teacher in work.teachers.values()))
    mesh_degrees = degrees(work.train.strategy, 1, processes)
    assert 0 < training_memory(work, mesh_degrees, "cpu", weights) <= resident
    checkpoint_bytes = sum(
        path.stat().st_size for path in (Path(job.folder) / "checkpoints").rglob("*") if path.is_file()
    )
    assert training_disk(work.train, model) <= checkpoint_bytes + 2 * weight_bytes(job.output)
    assert (
        training_disk(work.train, model) >= 0.98 * (checkpoint_bytes + 2 * weight_bytes(job.output))
        or work.train.diloco
    )


def train(**settings: Any) -> Train:
    return Train(**{"steps": 1000, **settings})


@pytest.mark.parametrize(
    ("settings", "mesh_degrees", "device", "gib"),
    [
        ({}, Degrees(), "cpu", 6 + 2),  # AdamW: weights and two moments, and once more for a checkpoint
        ({}, Degrees(dp_replicate=4), "cpu", 4 * (6 + 2)),
        ({}, Degrees(dp_shard=4), "cpu", 6 + 2),
        ({}, Degrees(pp=2, dp_replicate=2), "cpu", 2 * 6 + 2),  # a teacher beside stages is there once
        ({"optimizer": {"name": "sgd", "momentum": 0.0}}, Degrees(), "cpu", 2 + 2),  # weights and gradients
        ({"optimizer": {"name": "adamw8bit"}}, Degrees(dp_shard=4), "cpu", 3 + 2),
        ({"optimizer": {"name": "sgd"}, "average": 0.9}, Degrees(), "cpu", 6 + 2),
        ({"diloco": {"every": 9}}, Degrees(dp_replicate=2), "cpu", 2 * (10 + 2)),
        ({"lora": {"modules": ["q"]}}, Degrees(), "cpu", 2 + 2),  # no gradients and no moments, but in the checkpoint
        ({}, Degrees(dp_replicate=2), "cuda", 2 * 3),  # the checkpoint's copy alone
        ({"offload": ("parameters",)}, Degrees(dp_shard=2), "cuda", 6 + 2),
        ({"offload": ("activations",)}, Degrees(), "cuda", 3),
    ],
)
def test_memory_is_of_what_every_step_needs(
    settings: dict[str, Any], mesh_degrees: Degrees, device: Any, gib: int
) -> None:
    """Of a model of 1 GiB and a teacher of 2."""
    weights = Held(GIB, 2 * GIB)
    assert training_memory(training_settings(train(**settings)), mesh_degrees, device, weights) == gib * GIB


@pytest.mark.parametrize(
    ("mesh_degrees", "shards", "copies"),
    [
        (Degrees(dp_replicate=4), None, 4),
        (Degrees(dp_replicate=4), 2, 2),
        (Degrees(dp_shard=4), 1, 4),
        (Degrees(pp=2, dp_shard=2), None, 1),
        (Degrees(pp=2, dp_shard=2), 2, 2),
    ],
)
def test_a_teacher_is_there_as_often_as_its_shards_make_copies(mesh_degrees: Degrees, shards: int, copies: int) -> None:
    settings = training_settings(train(), teacher_shards=shards)
    assert training_memory(settings, mesh_degrees, "cpu", Held(0, GIB)) == copies * GIB


@pytest.mark.parametrize(("shards", "copies"), [(None, 1), (1, 0), (2, 2), (4, 1)])
def test_whole_copies_of_a_teacher_beside_an_offloaded_student_stay_on_gpus(shards: int | None, copies: int) -> None:
    offloaded = training_settings(train(offload=("parameters",)), teacher_shards=shards)
    assert training_memory(offloaded, Degrees(dp_shard=4), "cuda", Held(0, GIB)) == copies * GIB


def test_a_training_without_a_teacher_has_any_degrees() -> None:
    """The teacher's own, whose processes student.teacher_shards need not divide."""
    settings = training_settings(train(), teacher_shards=2)
    assert training_memory(settings, Degrees(), "cpu", Held(GIB, 0)) == 6 * GIB


def test_frozen_weights_in_four_bits_take_no_less_than_an_eighth() -> None:
    lora = {"modules": ["q"], "frozen_precision": "nf4"}
    assert training_memory(training_settings(train(lora=lora)), Degrees(), "cpu", Held(8 * GIB, 0)) == 2 * GIB


@pytest.mark.parametrize(("kind", "share"), [("bf16", 2), ("int8", 4), ("nf4", 8)])
def test_a_teacher_in_fewer_bytes_takes_no_less_than_this(kind: Any, share: int) -> None:
    settings = training_settings(train(), teacher_precision=kind)
    assert training_memory(settings, Degrees(), "cpu", Held(0, 2 * GIB)) == 2 * GIB // share


@pytest.mark.parametrize(
    ("settings", "gib"),
    [
        ({}, 9),  # the third checkpoint is written while two are kept
        ({"checkpoint_every": 1000}, 3 + 2),  # one, and the model twice while it is taken over
        ({"checkpoint_every": 500}, 2 * 3 + 2),
        ({"steps": None, "epochs": 3}, 3 + 2),  # of how many steps is not known
        ({"guard": {}}, 3 + 2),  # may leave some out
        ({"validate_every": 10, "patience": 1}, 3 + 2),  # may end early
        ({"validate_every": 10, "keep_best": True, "checkpoint_every": 1000}, 3 + 2 + 1),
        ({"optimizer": {"name": "sgd", "momentum": 0.0}}, 2 + 2),
    ],
)
def test_disk_is_of_what_is_there_at_the_same_time(settings: dict[str, Any], gib: int) -> None:
    assert training_disk(train(**settings), GIB) == gib * GIB


def test_as_many_checkpoints_are_there_as_are_kept_and_one() -> None:
    assert AT_ONCE == RETAINED + 1
    assert [saves(train(steps=steps)) for steps in (1, 100, 101)] == [1, 1, 2]
    assert saves(train(steps=100, guard={})) == 2
    assert saves(train(steps=None, epochs=1)) is None


def test_an_evaluation_holds_all_models_whole_in_each_process_or_once_in_shards() -> None:
    assert evaluation_memory(Degrees(dp_replicate=3), "cpu", GIB) == 3 * GIB
    assert evaluation_memory(Degrees(dp_shard=3), "cpu", GIB) == GIB
    assert evaluation_memory(Degrees(), "cuda", GIB) == 0


@given(st.integers(0, 2**50), st.integers(0, 2**50), st.integers(1, 8), st.integers(1, 8))
def test_more_shards_never_take_more_and_more_copies_never_less(
    model: int, teacher: int, copies: int, shards: int
) -> None:
    weights = Held(model, teacher)
    single, sharded, copied = (
        training_memory(training_settings(train()), mesh_degrees, "cpu", weights)
        for mesh_degrees in (Degrees(), Degrees(dp_shard=shards), Degrees(dp_replicate=copies))
    )
    assert sharded == single <= copied
