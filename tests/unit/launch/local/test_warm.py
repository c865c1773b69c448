"""One warm process for all tests here: its imports take seconds."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from understudy.launch.local import warm
from understudy.store import Run, Store
from understudy.store.files import read_json, write_json
from understudy.store.lease import Process

TASKS = """
import os, sys, time
from pathlib import Path
from understudy.agent.parent import die_with_parent

def main():
    die_with_parent()
    place = Path(sys.argv[1])
    print("torch" in sys.modules, os.environ["COLOUR"], "LEFT_OVER" in os.environ, flush=True)
    place.with_suffix(".pid").write_text(str(os.getpid()))
    while place.exists():
        time.sleep(0.01)
    return 7
"""


BEGIN = """
import sys
from pathlib import Path
from understudy.launch.local import warm
warm.begin(warm.Run(Path(sys.argv[1])))
"""


class Driven:
    """A run whose driver is a process of its own, with a warm process that an earlier step began."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tasks.py").write_text(TASKS)
        self.driver = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.run: Run = Store(folder / "store").create_run("test", {}, "")
        facts = {**read_json(self.run.folder / "run.json"), "driver": Process.of(self.driver.pid).__dict__}
        write_json(self.run.folder / "run.json", facts)
        paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths, "LEFT_OVER": "1"}
        subprocess.run([sys.executable, "-c", BEGIN, str(self.run.folder)], env=environment, check=True)

    def end(self) -> None:
        self.driver.kill()
        self.driver.wait()

    @property
    def server(self) -> Process:
        return Process(**read_json(self.run.folder / warm.ADDRESS)["process"])

    def start(self, name: str) -> tuple[warm.Worker | None, Path]:
        """A worker that runs until its file is removed."""
        path = self.folder / name
        path.touch()
        environment = {"COLOUR": "blue", "PATH": os.environ["PATH"]}
        return warm.start(self.run, "tasks", str(path), environment, self.folder / f"{name}.log"), path


def is_met(condition: Callable[[], object], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driven]:
    driven = Driven(tmp_path_factory.mktemp("driven"))
    yield driven
    driven.end()
    assert is_met(driven.server.is_gone, 5), "the warm process outlived its driver"


def pid(path: Path) -> int:
    assert is_met(path.with_suffix(".pid").exists)
    assert is_met(lambda: path.with_suffix(".pid").read_text())
    return int(path.with_suffix(".pid").read_text())


def test_a_worker_has_torch_and_only_its_own_environment(driven: Driven) -> None:
    worker, path = driven.start("colour")
    assert worker is not None
    assert worker.poll() is None
    pid(path)
    path.unlink()
    assert worker.wait() == 7
    assert worker.poll() == 7
    assert (driven.folder / "colour.log").read_text() == "True blue False\n"


def test_a_killed_worker_is_a_death_by_signal(driven: Driven) -> None:
    worker, path = driven.start("killed")
    assert worker is not None
    os.kill(pid(path), signal.SIGKILL)
    assert is_met(lambda: worker.poll() is not None)
    assert worker.wait() == -signal.SIGKILL


def test_a_worker_can_be_killed_by_its_step(driven: Driven) -> None:
    worker, path = driven.start("ended")
    assert worker is not None
    process = Process.of(pid(path))
    worker.kill()
    assert worker.wait() == -signal.SIGKILL
    assert is_met(process.is_gone, 5)


def test_a_worker_dies_with_its_step(driven: Driven) -> None:
    worker, path = driven.start("orphan")
    assert worker is not None
    process = Process.of(pid(path))
    worker._connection.close()  # as the kernel does for a killed step
    assert is_met(process.is_gone, 5)


def test_a_worker_that_ends_with_its_step_does_no_harm(driven: Driven) -> None:
    for number in range(20):
        worker, path = driven.start(f"both-{number}")
        assert worker is not None
        process = Process.of(pid(path))
        os.kill(process.pid, signal.SIGKILL)
        worker._connection.close()
        assert is_met(process.is_gone, 5)
    assert not driven.server.is_gone()


def test_workers_of_a_warm_process_that_is_killed_die_and_the_next_start_as_usual(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    worker, path = driven.start("first")
    assert worker is not None
    process = Process.of(pid(path))
    os.kill(driven.server.pid, signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    assert is_met(process.is_gone, 5)
    assert driven.start("second")[0] is None
    driven.end()


def test_a_warm_process_that_still_imports_ends_with_its_driver(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    time.sleep(0.5)
    driven.end()
    assert is_met(driven.server.is_gone, 3)


def test_a_run_without_a_driver_has_no_warm_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "pod")
    run = Store(tmp_path / "store").create_run("test", {}, "")
    warm.begin(run)
    assert not (run.folder / warm.ADDRESS).exists()
    assert warm.start(run, "tasks", "", {}, tmp_path / "log") is None
