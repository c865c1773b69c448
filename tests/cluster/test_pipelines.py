"""A model in stages over two nodes, each stage in shards: killed, it goes on, with the same stages or without any."""

import time
from collections.abc import Callable

import pytest

from tests.cluster.launched import EVERY, Launcher, both, kubectl, recipe, restart, wait
from understudy.runs.orphans import stop

pytestmark = pytest.mark.cluster
TRAIN = {"strategy": {"pp": 2, "dp_shard": 2}, "gradient_accumulation_steps": 2}
KILL = "kill -9 $(pgrep -f understudy.agent.worker | head -n 1)"


@both(full="pytorchjob")
def test_stages_go_on_at_their_last_checkpoint_and_then_as_shards(
    launch: Callable[..., Launcher], recovered: Callable[[float], None]
) -> None:
    launcher = launch(recipe("chain", train=TRAIN, processes=2, kwargs={"pause": 0.01}))
    launcher.reaches(25)
    began = time.time()
    kubectl("exec", launcher.worker(1)["metadata"]["name"], "--", "sh", "-c", KILL, check=False)
    before, after = wait(lambda: restart(launcher, began))
    recovered(after["time"] - began)
    assert 0 < before["step"] - 2 * EVERY <= after["step"] - 1 <= before["step"]
    launcher.reaches(before["step"] + 2 * EVERY)
    first: dict[int, float] = {}
    for point in launcher.points():  # repeated steps have the same numbers
        assert first.setdefault(point["step"], point["loss"]) == point["loss"]
    assert len(first) > 1

    assert stop(launcher.kube, launcher.name)
    wait(lambda: not launcher.workers() and not launcher.pods())
    at = launcher.last_checkpoint()
    resharded = launch(recipe("chain", train={"strategy": "fsdp", "resume_resharded": True}, kwargs={"pause": 0.01}))
    assert resharded.ends() == 0, resharded.output()
    assert min(point["step"] for point in resharded.points()) == at + 1 > before["step"]
