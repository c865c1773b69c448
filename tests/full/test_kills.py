"""kill -9 at any moment: no process is left behind, and a training in pieces equals a training in one go.

Each test kills one job three times, a rank, the launcher and the launcher's whole process group in random order, at
random steps, one of them while a checkpoint is written. UNDERSTUDY_KILLS=5 does that five times, and under ddp and hsdp
too.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.ranks.faults import stage as stages
from tests.ranks.faults.stage import PAUSE, PROCESSES, Stage, wait

ROUNDS = range(int(os.environ.get("UNDERSTUDY_KILLS", "1")))
STRATEGIES = [name for name in PROCESSES if len(ROUNDS) > 1 or name in ("single", "fsdp")]
VICTIMS = ("rank", "launcher", "group")


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_killed_training_goes_on_to_the_same_bits(
    stage: Stage, undisturbed: Callable[[str], str], strategy: str, number: int
) -> None:
    chance = random.Random(f"{strategy} {number}")
    steps = sorted(chance.sample(range(1, 50), len(VICTIMS)))
    while_writing = (number + list(PROCESSES).index(strategy)) % len(VICTIMS)
    for index, victim in enumerate(chance.sample(VICTIMS, len(VICTIMS))):
        launcher = go_on(stage, strategy)
        meet(stage, steps[index], chance.random(), while_writing=index == while_writing)
        kill(stage, launcher, victim, chance)
        code, _, error = stages.ended(launcher, 60)
        assert not stage.left_behind(), victim
        assert code == (1 if victim == "rank" else -signal.SIGKILL), error
        assert victim != "rank" or "SIGKILL" in error
        assert stage.remembered("teacher") == []
    code, out, error = stages.ended(go_on(stage, strategy))
    assert code == 0, error
    assert stages.digest(out) == undisturbed(strategy)
    assert not stage.left_behind()


def go_on(stage: Stage, strategy: str) -> "subprocess.Popen[str]":
    """Start, and see that the job begins behind its last complete checkpoint."""
    before, now = max(stage.checkpoints(), default=0), time.time()
    launcher = stage.steps(stages.recipe(strategy))
    assert stage.first_report(launcher, now) == before + 1
    return launcher


def meet(stage: Stage, step: int, part: float, while_writing: bool) -> None:
    """Wait until the job is at a step."""
    assert wait(lambda: stage.reported()[-1] >= step // 10 * 10)
    if while_writing:
        assert wait(stage.is_writing, every=0.0005)
    else:
        time.sleep((step % 10 + part) * PAUSE)


def kill(stage: Stage, launcher: "subprocess.Popen[str]", victim: str, chance: random.Random) -> None:
    if victim == "rank":
        os.kill(stage.ranks()[chance.randrange(len(stage.ranks()))], signal.SIGKILL)
    elif victim == "launcher":
        launcher.kill()
    else:
        os.killpg(launcher.pid, signal.SIGKILL)
