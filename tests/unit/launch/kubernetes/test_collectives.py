"""The launcher's side of a measurement: its job and its output; on a cluster: tests/cluster/test_collectives.py."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from understudy.errors import FAILED
from understudy.jobs import collectives as files
from understudy.jobs.collectives import Timing
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.kube import settings
from understudy.launch.kubernetes import collectives
from understudy.launch.launcher import Watch


class Ends:
    """A launcher whose job ends as it is told."""

    outcome = Outcome(0)
    jobs: ClassVar[list[JobSpec]] = []

    def __init__(self, *_: Any) -> None: ...

    def run(self, spec: JobSpec, watch: Watch) -> Outcome:
        watch()
        self.jobs.append(spec)
        output = Path(spec.folder) / "attempt.1.aa" / "output"
        output.mkdir(parents=True)
        files.write(output, [Timing(2**20, 0.001)])
        return self.outcome


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Ends]:
    text = "{image: i:1, claim: store, pools: {gpu: {}}}"
    (tmp_path / "cluster.yaml").write_text(text)
    monkeypatch.setenv(settings.SETTINGS, str(tmp_path / "cluster.yaml"))
    monkeypatch.setenv(settings.RUN_ID, "collectives-1")
    monkeypatch.setenv(collectives.HOME, str(tmp_path / "home"))
    monkeypatch.setattr("sys.argv", ["collectives", "gpu", "2", "1"])
    monkeypatch.setattr(collectives, "KubernetesLauncher", Ends)
    monkeypatch.setattr(collectives.signal, "signal", lambda *_: None)
    settings.cluster_settings.cache_clear()
    monkeypatch.setattr(Ends, "outcome", Outcome(0))
    monkeypatch.setattr(Ends, "jobs", [])
    return Ends


def test_the_timings_are_printed_and_nothing_stays_in_the_store(
    launched: type[Ends], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collectives.main() == 0
    assert "1 MiB     1.000 ms    1.049 GB/s    1.049 GB/s" in capsys.readouterr().out
    [spec] = launched.jobs
    assert (spec.nodes, spec.processes, spec.device, spec.supervised) == (2, 1, "cpu", True)
    assert list((tmp_path / "home" / "store" / "work").iterdir()) == []


def test_a_failed_job_is_reported_and_removed(
    launched: type[Ends], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launched, "outcome", Outcome(FAILED, "rank 1 was killed"))
    assert collectives.main() == FAILED
    assert "no measure: rank 1 was killed" in capfd.readouterr().err
    assert list((tmp_path / "home" / "store" / "work").iterdir()) == []
