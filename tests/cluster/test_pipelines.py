"""A model in stages over two nodes, each stage in shards: a killed rank costs what lies after the last checkpoint."""

import time
from collections.abc import Callable

import pytest

from tests.cluster.launched import BOTH, EVERY, Launcher, kubectl, recipe, restart, wait

pytestmark = pytest.mark.cluster
TRAIN = {"strategy": {"pp": 2, "dp_shard": 2}, "gradient_accumulation_steps": 2}
KILL = "kill -9 $(pgrep -f understudy.agent.worker | head -n 1)"


@BOTH
def test_stages_go_on_at_their_last_checkpoint(
    launch: Callable[..., Launcher], recovered: Callable[[float], None]
) -> None:
    launcher = launch(recipe("chain", train=TRAIN, processes=2, kwargs={"pause": 0.01}))
    launcher.reaches(25)
    began = time.time()
    kubectl("exec", launcher.worker(1)["metadata"]["name"], "--", "sh", "-c", KILL, check=False)
    before, after = wait(lambda: restart(launcher, began))
    recovered(after["time"] - began)
    assert 0 < before["step"] - 2 * EVERY <= after["step"] - 1 <= before["step"]
    assert launcher.ends() == 0, launcher.said()
    first: dict[int, float] = {}
    for point in launcher.points():  # what was done again has the same numbers
        assert first.setdefault(point["step"], point["loss"]) == point["loss"]
    assert len(first) > 1
