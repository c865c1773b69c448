import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.jobs.specs import with_resources
from understudy.errors import FAILED, Fenced, InputError
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.local import kills, launcher
from understudy.launch.local.launcher import LocalLauncher
from understudy.launch.local.torchrun import first_to_fail
from understudy.store import Run

Script = Callable[[str], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run without a driver, and so without a warm process."""
    return Run(tmp_path / "run")


@pytest.fixture(autouse=True)
def checked_jobs(monkeypatch: pytest.MonkeyPatch) -> list[JobSpec]:
    """The jobs of which it was asked whether they fit."""
    checked_jobs: list[JobSpec] = []
    monkeypatch.setattr(launcher, "check_that_it_fits", lambda run, spec: checked_jobs.append(spec))
    return checked_jobs


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Python code that takes the place of the worker, or of torchrun."""

    def script(code: str) -> None:
        monkeypatch.setattr(launcher, "command", lambda spec, path: [sys.executable, "-c", code, str(path)])

    return script


def watch() -> None:
    return


# Processes


@pytest.mark.parametrize(
    ("processes", "module"), [(1, "understudy.agent.worker"), (2, "understudy.launch.local.torchrun")]
)
def test_one_process_is_a_worker_and_several_are_torchruns(job: JobSpec, processes: int, module: str) -> None:
    spec = with_resources(job, processes=processes)
    assert launcher.command(spec, spec.path) == [sys.executable, "-m", module, str(spec.path)]


def test_more_than_one_node_is_refused_here(job: JobSpec, run: Run) -> None:
    with pytest.raises(InputError, match=r"resources: more than one node needs a cluster.*set nodes=1"):
        LocalLauncher(run).run(with_resources(job, nodes=2), watch)


def test_a_job_that_cannot_fit_is_not_started(
    job: JobSpec, run: Run, script: Script, monkeypatch: pytest.MonkeyPatch, checked_jobs: list[JobSpec]
) -> None:
    script("raise SystemExit('begun')")

    def refuse(*_: object) -> None:
        raise InputError("too large")

    with monkeypatch.context() as patch:
        patch.setattr(launcher, "check_that_it_fits", refuse)
        with pytest.raises(InputError, match="too large"):
            LocalLauncher(run).run(job, watch)
    assert not (Path(job.logs) / "teacher.log").exists()
    LocalLauncher(run).run(job, watch)
    assert checked_jobs == [job]


@pytest.mark.parametrize(("processes", "expected"), [(1, ["0", "0", "1"]), (2, [None, None, None])])
def test_a_single_worker_gets_its_rank_and_torchrun_gives_it_to_several(
    job: JobSpec, run: Run, script: Script, monkeypatch: pytest.MonkeyPatch, processes: int, expected: list[str | None]
) -> None:
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE"]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    script("import json, os, sys; open(sys.argv[1] + '.environment', 'w').write(json.dumps(dict(os.environ)))")
    spec = with_resources(job, processes=processes)
    assert LocalLauncher(run).run(spec, watch) == Outcome(0)
    environment = json.loads(Path(f"{spec.path}.environment").read_text())
    assert [environment.get(name) for name in names] == expected
    assert environment["OMP_NUM_THREADS"] == "3"


def test_the_job_finds_its_specification_and_nothing_of_an_earlier_attempt(
    job: JobSpec, run: Run, script: Script
) -> None:
    for stale in (job.stop_file, job.metrics):
        stale.touch()
    Outcome(2, "of yesterday").write(job.outcome(1))
    Outcome(1, "of yesterday").write(job.outcome(-1))
    script("import os, sys; print(sorted(os.listdir(os.path.dirname(sys.argv[1]))))")
    assert LocalLauncher(run).run(job, watch) == Outcome(0)
    assert JobSpec.read(job.path) == job
    assert (Path(job.logs) / "teacher.log").read_text() == "['job.json', 'logs']\n"


def test_all_attempts_share_a_log(job: JobSpec, run: Run, script: Script) -> None:
    script("import sys; print('out', flush=True); print('error', file=sys.stderr)")
    LocalLauncher(run).run(job, watch)
    LocalLauncher(run).run(job, watch)
    assert (Path(job.logs) / "teacher.log").read_text() == 2 * "out\nerror\n"


def test_an_exception_of_the_watch_ends_the_job(job: JobSpec, run: Run, script: Script) -> None:
    def fenced() -> None:
        if (Path(job.folder) / "pid").exists():
            raise Fenced("another run has taken this step over")

    script(
        "import os, sys, time; folder = os.path.dirname(sys.argv[1])\n"
        "open(f'{folder}/.pid', 'w').write(str(os.getpid())); os.rename(f'{folder}/.pid', f'{folder}/pid')\n"
        "time.sleep(60)"
    )
    with pytest.raises(Fenced):
        LocalLauncher(run).run(job, fenced)
    assert not Path("/proc", (Path(job.folder) / "pid").read_text()).exists()


# How it ended


def outcome(job: JobSpec, run: Run, script: Script, code: int, outcomes: dict[int, Outcome]) -> Outcome:
    for rank, word in outcomes.items():
        word.write(Path(job.folder) / f"said-{rank}.json")
    script(
        "import glob, os, signal, sys\n"
        "folder = os.path.dirname(sys.argv[1])\n"
        "for path in glob.glob(f'{folder}/said-*'): os.rename(path, path.replace('said', 'outcome'))\n"
        f"os.kill(os.getpid(), {-code}) if {code} < 0 else sys.exit({code})"
    )
    return LocalLauncher(run).run(job, watch)


KILLED = Outcome(FAILED, "rank 1 ended with signal SIGKILL", "killed", at=30.0)
ECHO = Outcome(FAILED, "rank 0: RuntimeError: connection closed by peer", "raised", at=20.0)
RAISED = Outcome(FAILED, "rank 1: ValueError", "raised", at=10.0)
TOLD = Outcome(2, "teacher.model.config: hidden_size 7 is odd", "reported", at=40.0)
SILENT = Outcome(FAILED, "rank 1 ended with exit code 1", "unreported", at=5.0)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ({0: ECHO, -1: KILLED}, KILLED),
        ({0: ECHO, 1: RAISED, -1: SILENT}, RAISED),
        ({0: ECHO, 1: TOLD, -1: SILENT}, TOLD),
        ({0: Outcome(0), 1: TOLD}, TOLD),
        ({-1: SILENT}, SILENT),
    ],
)
def test_the_message_names_the_cause_and_not_its_consequences(
    job: JobSpec, run: Run, script: Script, outcomes: dict[int, Outcome], expected: Outcome
) -> None:
    assert outcome(job, run, script, 1, outcomes) == expected


def test_a_job_whose_ranks_all_ended_well_has(job: JobSpec, run: Run, script: Script) -> None:
    assert outcome(job, run, script, 0, {0: Outcome(0), 1: Outcome(0)}) == Outcome(0)


def test_a_death_by_sigkill_is_explained_by_memory(
    job: JobSpec, run: Run, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([3, 4])
    monkeypatch.setattr(launcher, "oom_kill_count", lambda: next(counts))
    monkeypatch.setattr(kills, "oom_kill_count", lambda: next(counts))
    result = outcome(with_resources(job, processes=1), run, script, -signal.SIGKILL, {})
    assert (result.exit_code, result.kind) == (FAILED, "killed")
    assert result.message.startswith("rank 0 ended with signal SIGKILL. The kernel's OOM killer ended 1 on")
    for fix in ("batch_size", "gradient_accumulation_steps", "fsdp", "run again to resume"):
        assert fix in result.message


@pytest.mark.parametrize(
    ("code", "message"),
    [(-signal.SIGSEGV, "rank 0 ended with signal SIGSEGV. Its output is in "), (7, "rank 0 ended with exit code 7. ")],
)
def test_another_death_is_named_without_a_guess(
    job: JobSpec, run: Run, script: Script, code: int, message: str
) -> None:
    result = outcome(with_resources(job, processes=1), run, script, code, {})
    assert result.exit_code == FAILED
    assert message in result.message
    assert "memory" not in result.message


# Whom torchrun saw failing: by rank, the second and the exit code


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        ({0: (100, 1), 1: (100, -signal.SIGKILL)}, 1),
        ({0: (100, -signal.SIGTERM), 1: (100, 1)}, 1),
        ({0: (101, 1), 1: (100, 1)}, 1),
        ({0: (130, -signal.SIGKILL), 1: (100, 1)}, 1),
        ({0: (100, -signal.SIGTERM), 1: (100, -signal.SIGSEGV)}, 1),
        ({1: (100, -signal.SIGTERM)}, 1),
    ],
)
def test_whom_torchrun_ended_did_not_fail_first(failures: dict[int, tuple[int, int]], rank: int) -> None:
    assert first_to_fail(failures) == (rank, failures[rank][1])
