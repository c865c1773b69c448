"""The walk of docs/kfp.md on a real KFP: what runs, what is reused, refused, rejected, terminated, retried, shown."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.kfp.server import HOST, PAGES, SEED, Run, begin, kubectl, server, wait
from tests.unit.manifests.test_kubeflow import overlay
from understudy.cli import doctor_cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not HOST, reason="KFP_HOST is not set"),
]
STEPS = ["control", "distill", "evaluate", "gate", "ingest", "prepare", "register", "start", "teacher"]
LONG = "teacher.train.epochs=2000; teacher.train.checkpoint_every=20"


@pytest.fixture(scope="module", autouse=True)
def applied(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The overlay that the docs have for a stock KFP."""
    import json

    folder = tmp_path_factory.mktemp("kfp")
    (folder / "all.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": overlay("kubeflow", folder)})
    )
    kubectl("delete", "job", "understudy-prepare-store", "--ignore-not-found")
    kubectl("apply", "--server-side", "-f", str(folder / "all.json"))
    kubectl("wait", "--for=condition=complete", "job/understudy-prepare-store", "--timeout=180s")
    kubectl("rollout", "status", "deployment/mlflow", "--timeout=300s")


@pytest.fixture(scope="module")
def whole() -> Run:
    """A run that makes everything."""
    run = begin()
    assert run.end() == 0, run.told
    return run


@pytest.fixture
def training() -> Iterator[Run]:
    """A run whose teacher is being trained, and long."""
    run = begin(LONG, seed=SEED + 1)
    wait(lambda: run.jobs)
    wait(lambda: [pod for pod in run.pods("teacher") if "teacher: running" in run.log(pod)])
    yield run
    if run.workflow["status"]["phase"] == "Running":
        run.do("terminate")


def test_the_doctor_finds_nothing() -> None:
    problems = [check for check in doctor_cluster.checks("kubeflow") if not check.ok]
    assert not problems


def test_a_wrong_override_is_told_by_the_first_task() -> None:
    run = begin("gate.margin=7")
    assert run.end() == 1
    assert run.told[-1].startswith("failed: start: overrides gate.margin=7: gate.margin: must be less than 1")
    assert run.tasks == ["start"]


def test_a_run_has_every_step_and_what_a_task_says_stands_there_once(whole: Run) -> None:
    assert whole.tasks == STEPS
    assert whole.told[-1] == "succeeded"


def test_a_run_that_reuses_everything_has_one_task(whole: Run) -> None:
    run = begin()
    assert run.end() == 0
    assert run.tasks == ["start"]


@pytest.mark.parametrize("fails", [True, False])
def test_a_rejection_is_green_or_names_its_rule(whole: Run, fails: bool) -> None:
    run = begin("gate.max_size_ratio=0.001", fails=fails)
    assert run.end() == int(fails)
    assert not fails or re.search(r"failed: (start|rejected): rejected by size; ", run.told[-1])


def test_a_run_that_is_terminated_ends_its_job_and_a_retry_goes_on(training: Run) -> None:
    training.do("terminate")
    assert training.end() == 1
    assert "teacher: this process was asked to end (SIGTERM): what is done is kept" in training.told[-1]
    wait(lambda: not training.jobs, 60)
    training.do("retry")
    wait(lambda: training.jobs)
    wait(lambda: [pod for pod in training.pods("teacher") if "resum" in training.log(pod).lower()])


def test_a_run_survives_the_deletion_of_a_task_s_pod_and_its_job_is_adopted(training: Run) -> None:
    job, (pod,) = training.jobs, training.pods("teacher")
    kubectl("delete", "pod", pod, "--wait=false")
    wait(lambda: [other for other in training.pods("teacher") if other != pod])
    assert training.jobs == job


def test_objects_of_the_pipelines_are_taken(whole: Run) -> None:
    if "pipelines.pipelines.kubeflow.org" not in kubectl("get", "crd", "-o", "name"):
        pytest.skip("KFP keeps its pipelines in its database")
    kubectl("apply", "-k", str(ROOT / "manifests/pipelines"))
    listed = wait(lambda: {one.display_name for one in server().client().list_pipelines(page_size=50).pipelines or ()})
    assert {"digits", "llm", "pydoc"} <= listed


@pytest.mark.skipif(not (PAGES and shutil.which("chromium")), reason="KFP_UI is not set")
def test_the_first_page_shows_every_step(whole: Run, tmp_path: Path) -> None:
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--window-size=1500,1500", "--virtual-time-budget=20000", "--dump-dom", server().page(whole.id)]
    page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert all(re.search(rf">{step}<", page) for step in [*STEPS, "rejected"])
