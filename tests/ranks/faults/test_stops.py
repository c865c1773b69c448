"""Ctrl-C, SIGTERM and kill -9 for the command itself, and the resumed run, under other degrees too."""

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load_file

from tests.ranks.faults import stage as stages
from tests.ranks.faults.stage import PAUSE, Stage, wait
from understudy.models.facts import WEIGHTS
from understudy.store import Store


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_run_that_was_stopped_or_killed_goes_on_from_its_checkpoint(
    stage: Stage, undisturbed: Callable[[str], str]
) -> None:
    command = train(stage)
    os.kill(step(stage), signal.SIGKILL)
    code, _, error = stages.ended(command)
    assert code == 1
    assert "the process of step teacher ended without an outcome" in error
    assert not stage.left_behind()
    for number in (signal.SIGINT, signal.SIGTERM):
        command = train(stage)
        os.killpg(command.pid, number)  # as a terminal does on Ctrl-C: all processes of the command's group
        code, out, error = stages.ended(command)
        assert code == 130, error
        assert "stopping at a checkpoint" in out
        reported_step = stage.reported()[-1]
        assert stage.checkpoints()[-1] == reported_step
        assert f"stopped at step {reported_step} of {stages.STEPS}, at a checkpoint; run again to resume" in error
        assert not stage.left_behind()
    command = train(stage)
    command.kill()
    stages.ended(command)
    assert not stage.left_behind()
    command = train(stage)
    assert wait(lambda: stage.remembered("teacher"))
    command.terminate()
    code, _, error = stages.ended(command, 20)  # steps without checkpoints stop at once
    assert code == 130, error
    assert "run again to resume" in error
    assert not stage.left_behind()
    assert stage.remembered("teacher") == [undisturbed("single")]


def train(stage: Stage) -> "subprocess.Popen[str]":
    """Run the command until it has trained a few steps more; it must begin behind the last checkpoint."""
    before, now = max(stage.checkpoints(), default=0), time.time()
    command = stage.run(stages.recipe())
    assert stage.first_report(command, now) == before + 1
    time.sleep(7 * PAUSE)
    return command


def step(stage: Stage) -> int:
    """The process id of the pipeline's task that makes the teacher; kfp starts it below a shell."""
    tasks = [process for process in stage.processes() if "--function_to_execute train" in process.command]
    return next(process.pid for process in tasks if not process.command.startswith("sh "))


@pytest.mark.parametrize("seconds", [0.5, 2.0, 4.0])
def test_nobody_is_left_behind_whenever_the_command_is_killed(stage: Stage, seconds: float) -> None:
    command = stage.run(stages.recipe())
    time.sleep(seconds)
    command.kill()
    stages.ended(command)
    assert not stage.left_behind()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_training_that_was_killed_goes_on_under_other_degrees(stage: Stage) -> None:
    settings = {"batch_size": 16, "max_grad_norm": None}
    killed = stage.steps(stages.recipe("ddp", dropout=0.0, train=settings))
    assert wait(lambda: stage.reported() and stage.reported()[-1] >= 40)
    killed.kill()
    stages.ended(killed)
    assert not stage.left_behind()
    before = stage.checkpoints()[-1]
    anew = {**settings, "resume_resharded": True}
    code, out, error = stages.ended(stage.steps(stages.recipe("fsdp", dropout=0.0, train=anew), lease_seconds=2))
    assert code == 0, error
    went_on = stages.digest(out)
    manifest = Store(stage.store).objects.manifest(went_on)
    assert manifest
    assert manifest.facts["resumed_from"] == f"step {before} of ddp on 1 x 2 processes"
    code, out, error = stages.ended(stage.steps(stages.recipe("fsdp", dropout=0.0, train=settings)))
    assert code == 0, error
    unbroken = weights(stage, stages.digest(out))
    for name, tensor in weights(stage, went_on).items():
        assert tensor.sub(unbroken[name]).abs().max() < 1e-4, name


def weights(stage: Stage, digest: str) -> dict[str, torch.Tensor]:
    return load_file(Store(stage.store).objects.path(digest) / WEIGHTS)
