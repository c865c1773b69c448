"""Jobs that cannot fit this machine, and those that can."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.jobs.specs import evaluation_spec, job_spec, training_settings, with_resources
from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.launch.local import refusal
from understudy.launch.local.refusal import check_that_it_fits
from understudy.models.facts import WEIGHTS
from understudy.plan.lower_bounds import Held, training_disk, training_memory
from understudy.recipe import Degrees, Train
from understudy.store import Run

GIB = 2**30
RUN = Run(Path("run"))


class Machine:
    """The machine's memory and disk, and the size of a training's weights."""

    memory = disk = 2**60
    weights = Held(GIB, 2 * GIB)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    faked = Machine()
    monkeypatch.setattr(refusal, "model_weights", lambda *_: faked.weights)
    monkeypatch.setattr(refusal, "available_memory", lambda with_swap: faked.memory)
    monkeypatch.setattr(refusal, "_free_disk", lambda _: faked.disk)
    return faked


def training(folder: Path, processes: int = 1, **train: Any) -> JobSpec:
    lease = folder / "work" / "key" / "1.holder"
    lease.mkdir(parents=True, exist_ok=True)
    return job_spec(lease, role="distill", train={"steps": 1000, **train}, resources={"processes": processes})


@pytest.mark.parametrize(
    ("processes", "strategy", "message"),
    [
        (1, "single", r"take 8\.00 GiB of memory, .* and 7\.00 GiB are free here; take a smaller model, or a machine"),
        (2, "ddp", r"take 16\.00 GiB of memory, .* 7\.00 GiB are free here; take a smaller model"),
        (2, "fsdp", r"take 8\.00 GiB of memory, .* 7\.00 GiB are free here; take a smaller model"),
    ],
)
def test_too_little_memory_is_reported_with_both_numbers(
    tmp_path: Path, machine: Machine, processes: int, strategy: str, message: str
) -> None:
    machine.memory = 7 * GIB
    with pytest.raises(InputError, match=rf"^student\.train: weights, gradients and the optimiser's state {message}"):
        check_that_it_fits(RUN, training(tmp_path, processes, strategy=strategy))


def test_shards_are_the_fix_where_they_are_enough(tmp_path: Path, machine: Machine) -> None:
    machine.memory = 9 * GIB
    with pytest.raises(InputError, match=r"strategy: fsdp holds them once, and not 2 times$"):
        check_that_it_fits(RUN, training(tmp_path, 2, strategy="ddp"))
    check_that_it_fits(RUN, training(tmp_path, 2, strategy="fsdp"))


def test_too_little_disk_is_reported_with_both_numbers(tmp_path: Path, machine: Machine) -> None:
    machine.disk = 8 * GIB
    message = (
        r"student\.train: checkpoints and the finished model take 9\.00 GiB of disk .* 8\.00 GiB are free in (.*); make"
    )
    with pytest.raises(InputError, match=message) as caught:
        check_that_it_fits(RUN, training(tmp_path))
    assert f"free in {tmp_path};" in str(caught.value)
    check_that_it_fits(RUN, training(tmp_path, checkpoint_every=1000))


@pytest.mark.parametrize("subfolder", ["checkpoints/step-7", "attempt.0.abc/checkpoints/step-7"])
def test_a_training_that_goes_on_needs_room_for_its_model_alone(
    tmp_path: Path, machine: Machine, subfolder: str
) -> None:
    """It may have written its last checkpoint."""
    job = training(tmp_path)
    machine.disk = 2 * GIB - 100
    (Path(job.folder) / subfolder).mkdir(parents=True)
    with pytest.raises(InputError, match=r"take 2\.00 GiB of disk"):
        check_that_it_fits(RUN, job)
    (Path(job.folder) / subfolder / "rank").write_bytes(bytes(100))  # existing files are replaced or kept
    check_that_it_fits(RUN, job)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    model=st.integers(0, 2**40),
    teacher=st.integers(0, 2**40),
    copies=st.integers(1, 4),
    more=st.integers(-(2**20), 2**20),
    steps=st.integers(1, 500),
)
def test_a_job_is_refused_where_it_takes_more_than_there_is_and_nowhere_else(
    tmp_path: Path, machine: Machine, model: int, teacher: int, copies: int, more: int, steps: int
) -> None:
    strategy = "ddp" if copies > 1 else "single"
    job = training(tmp_path, copies, strategy=strategy, steps=steps)
    machine.weights = Held(model, teacher)
    train = Train(steps=steps)
    memory = training_memory(training_settings(train), Degrees(dp_replicate=copies), "cpu", machine.weights)
    disk = training_disk(train, model)
    for name, takes in (("memory", memory), ("disk", disk)):
        machine.memory = machine.disk = 2**60
        setattr(machine, name, max(0, takes + more))
        if takes > max(0, takes + more):
            with pytest.raises(InputError, match=f"of {name}"):
                check_that_it_fits(RUN, job)
        else:
            check_that_it_fits(RUN, job)


def measuring(folder: Path, processes: int, strategy: str) -> JobSpec:
    for role, size in (("teacher", 300), ("student", 100)):
        (folder / role).mkdir()
        (folder / role / WEIGHTS).write_bytes(bytes(size))
    job = with_resources(evaluation_spec(folder), processes=processes)
    job.payload.recipe.evaluate.__dict__["strategy"] = strategy  # type: ignore[union-attr]
    return job


@pytest.mark.parametrize(
    ("processes", "strategy", "memory", "fix"),
    [
        (2, "ddp", 799, r"evaluate\.strategy: fsdp holds them once, and not 2 times"),
        (2, "ddp", 800, None),
        (2, "fsdp", 399, "take a smaller model, or a machine with more memory"),
        (2, "fsdp", 400, None),
        (1, "ddp", 399, "take a smaller model, or a machine with more memory"),
    ],
)
def test_an_evaluation_that_cannot_hold_its_models_is_refused(
    tmp_path: Path, machine: Machine, processes: int, strategy: str, memory: int, fix: str | None
) -> None:
    job = measuring(tmp_path, processes, strategy)
    machine.memory = memory
    if fix is None:
        check_that_it_fits(RUN, job)
        return
    with pytest.raises(InputError, match=rf"^evaluate: the weights of teacher, student take .* free here; {fix}$"):
        check_that_it_fits(RUN, job)


def test_degrees_that_fit_no_process_are_the_job_s_to_tell(tmp_path: Path, machine: Machine) -> None:
    machine.memory = machine.disk = 0
    check_that_it_fits(RUN, training(tmp_path, 3, strategy="hsdp"))
