"""A job's metrics in a scrape; numbers of a whole supervised job are in kubernetes/test_events.py's world."""

import subprocess
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.unit.manifests.promtool import needs_promtool
from understudy.jobs.heartbeat import Heartbeat
from understudy.launch.metrics import JobMetrics, Observation, Reported, exposed
from understudy.metrics import REGISTRY

LABELS = {"run": "digits-1", "step": "teacher"}
LINE: Reported = {"step": 30, "steps": 100, "loss": 0.5, "rate": 1200.0, "memory": 2**30}


class Clock:
    """Seconds that pass when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def job(clock: Clock) -> JobMetrics:
    return JobMetrics("digits-1", "teacher", "digits", "images", clock)


def observation(stage: str = "running", **fields: Any) -> Observation:
    return Observation(**{"kind": "PyTorchJob", "name": "teacher-1", "stage": stage, "attempt": 1, **fields})


def value(job: JobMetrics, name: str, /, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(job)
    return registry.get_sample_value(f"understudy_{name}", LABELS | labels)


def test_a_job_without_a_report_has_only_its_name(job: JobMetrics) -> None:
    assert [family.name for family in job.collect()] == ["understudy_job"]
    assert value(job, "job_info", recipe="digits", unit="images") == 1


def test_the_newest_line_of_the_ranks_is_shown(job: JobMetrics) -> None:
    job.report(LINE)
    job.report({**LINE, "step": 40})
    shown = {
        name: value(job, f"job_{name}") for name in ("step", "steps", "loss", "targets_per_second", "memory_bytes")
    }
    assert shown == {"step": 40, "steps": 100, "loss": 0.5, "targets_per_second": 1200, "memory_bytes": 2**30}


def test_a_heartbeat_that_is_no_number_breaks_no_scrape(job: JobMetrics) -> None:
    job.report(cast(Reported, {"step": "many", "steps": None, "loss": float("nan"), "more": 1}))
    job.observe(
        observation(heartbeats={0: Heartbeat(0, "", "training", 1, "n", cast(float, "now"))}, failures=("odd",) * 9)
    )
    registry = CollectorRegistry()
    registry.register(job)
    text = generate_latest(registry).decode()
    assert 'understudy_job_loss{run="digits-1",step="teacher"} NaN' in text
    assert "many" not in text
    assert "odd" not in text, "ranks could make as many series as they like"
    assert "rank_heartbeat_timestamp_seconds{" not in text


def test_of_all_stages_one_is_the_jobs(job: JobMetrics) -> None:
    job.observe(observation("queued"))
    job.observe(observation("rendezvous"))
    assert value(job, "job_stage", stage="rendezvous") == 1
    assert value(job, "job_stage", stage="queued") == 0
    assert value(job, "job_info", recipe="digits", unit="images", kind="PyTorchJob", name="teacher-1") == 1


def test_the_seconds_between_two_rounds_are_those_of_the_stage_before(job: JobMetrics, clock: Clock) -> None:
    for stage, seconds in (("queued", 60), ("running", 10), ("queued", 5), ("running", 0)):
        job.observe(observation(stage))
        clock.now += seconds
    assert value(job, "job_stage_seconds_total", stage="queued") == 65
    assert value(job, "job_stage_seconds_total", stage="running") == 10
    assert value(job, "launcher_round_timestamp_seconds") == 1075


def test_a_clock_that_is_put_back_takes_no_seconds_away(job: JobMetrics, clock: Clock) -> None:
    job.observe(observation("queued"))
    clock.now -= 500
    job.observe(observation("queued"))
    assert value(job, "job_stage_seconds_total", stage="queued") == 0


@pytest.mark.parametrize(("attempt", "restarts"), [(0, 0), (1, 0), (3, 2)])
def test_the_first_attempt_is_no_restart(job: JobMetrics, attempt: int, restarts: int) -> None:
    job.observe(observation(attempt=attempt, failures=("killed", "killed", "lost"), starts=2, running_pods=4))
    assert value(job, "job_restarts_total") == restarts
    assert value(job, "job_failures_total", kind="killed") == 2
    assert value(job, "job_failures_total", kind="raised") == 0, "a series that begins with a failure shows no increase"
    assert value(job, "job_starts_without_progress") == 2
    assert value(job, "job_running_pods") == 4


def test_every_ranks_heartbeat_is_shown(job: JobMetrics) -> None:
    job.observe(
        observation(heartbeats={rank: Heartbeat(rank, "", "training", 1, "n", 900.0 + rank) for rank in range(3)})
    )
    assert [value(job, "rank_heartbeat_timestamp_seconds", rank=str(rank)) for rank in range(3)] == [900, 901, 902]


def test_a_job_is_among_the_processs_numbers_while_it_runs(job: JobMetrics) -> None:
    labels = LABELS | {"recipe": "digits", "unit": "images"}
    with exposed(job):
        assert REGISTRY.get_sample_value("understudy_job_info", labels) == 1
    assert REGISTRY.get_sample_value("understudy_job_info", labels) is None


@needs_promtool
def test_names_and_units_are_as_prometheus_wants_them(job: JobMetrics) -> None:
    job.report({**LINE, "learning_rate": 0.1, "grad_norm": 1.0})
    job.observe(observation(heartbeats={0: Heartbeat(0, "", "training", 1, "n", 900.0)}))
    with exposed(job):
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=generate_latest(REGISTRY), capture_output=True, check=False
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
