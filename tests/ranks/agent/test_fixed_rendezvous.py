"""Node agents that meet as Kubeflow Trainer has them meet, at a fixed place and each with a number; and once more."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ranks.train.jobs import VIT, spec
from understudy.agent import exit_codes
from understudy.jobs import attempts
from understudy.jobs.specification import JobSpec
from understudy.revision import build


@pytest.fixture
def two_nodes(tmp_path: Path, image_examples: Path) -> JobSpec:
    """A supervised job of two nodes with a process each, written into its folder."""
    train = {"steps": 200, "epochs": None, "batch_size": 8, "checkpoint_every": 5, "strategy": "ddp"}
    one_node = spec(tmp_path / "job", image_examples, VIT, train=train, version=build(), supervised=True)
    one_node.rank_logs.mkdir(parents=True)
    job = replace(one_node, resources=one_node.resources.model_copy(update={"nodes": 2}))
    job.write()
    return job


def agent(job: JobSpec, number: int, port: int) -> "subprocess.Popen[bytes]":
    """The command of a TrainJob's pod, with the environment that the Trainer sets."""
    settings = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "NNODES": "2", "NODE_RANK": str(number)}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **{f"PET_{name}": value for name, value in settings.items()}}
    command = [sys.executable, "-m", "understudy.agent.node", str(job.path)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


def ranks_of(agent: "subprocess.Popen[bytes]") -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(agent.pid), "-f", "agent.worker"], capture_output=True, check=False)
    return [int(line) for line in listed.stdout.split()]


@pytest.mark.full
def test_a_killed_rank_ends_both_nodes_to_be_started_again_and_they_meet_at_the_same_place(two_nodes: JobSpec) -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    agents = [agent(two_nodes, number, port) for number in range(2)]
    while not two_nodes.metrics.exists():
        assert all(process.poll() is None for process in agents)
        time.sleep(0.05)
    os.kill(ranks_of(agents[1])[0], signal.SIGKILL)
    assert [process.wait() for process in agents] == [exit_codes.PEERS_LOST, exit_codes.KILLED], "neither is for good"
    restarted = [agent(two_nodes, number, port) for number in (1, 0)]
    assert [process.wait() for process in restarted] == [0, 0]
    last = attempts.latest(Path(two_nodes.folder))
    assert last is not None
    assert last.name.startswith("attempt.2.")
    assert attempts.is_complete(two_nodes)
