import signal
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from understudy import logs
from understudy.agent import node, watchdog
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.jobs import attempts
from understudy.jobs.heartbeat import heartbeats
from understudy.jobs.specification import JobSpec


@pytest.fixture
def spec(job: JobSpec) -> JobSpec:
    return replace(job, supervised=True)


def test_a_rank_that_was_cut_off_reports_nothing_more(spec: JobSpec) -> None:
    spec.rank_logs.mkdir(parents=True)
    heartbeat = HeartbeatWriter(spec, 1)
    heartbeat.join(replace(spec, attempt=attempts.begin(spec, 2)))
    heartbeat("training", 3)
    assert heartbeats(Path(spec.folder), [1])[1].step == 3
    attempts.begin(spec, 2)
    heartbeat("training", 4)
    assert heartbeats(Path(spec.folder), [1]) == {}
    heartbeat.stop()


def test_the_agents_log_outlives_its_pod(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    spec.write()
    monkeypatch.setattr(node, "Watchdog", lambda *_: SimpleNamespace(start=lambda: None, evict=None))
    monkeypatch.setattr(node, "_failures", lambda *_: node.log.warning("the nodes lost each other: gone"))
    monkeypatch.setattr(node, "exit_code", lambda *_: 140)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    logs.configure()
    assert node.run(spec.path) == 140
    assert "the nodes lost each other: gone" in spec.agent_log(socket.gethostname()).read_text()


def test_a_node_that_is_no_longer_admitted_says_so(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        endpoint = f"localhost:{probe.getsockname()[1]}"
    settings = {"NNODES": "2", "RDZV_BACKEND": "c10d", "RDZV_ENDPOINT": endpoint, "RDZV_ID": "job"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PET_{name}", value)
    meeting = get_rendezvous_handler(RendezvousParameters("c10d", endpoint, "job", 2, 2, is_host=True))
    meeting.shutdown()  # as the agent of a node does whose rank has failed
    assert node._failures(spec, spec.path) is None
    assert (Path(spec.folder) / watchdog.CLOSED).exists()


# Where nodes meet
