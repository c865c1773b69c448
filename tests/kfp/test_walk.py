"""The walk of docs/operating/kfp.md on a real KFP: runs, reuse, rejection, termination, retries, pages.

Runs begin at once where only one of them trains: most of a run's time is Argo's, between two looks.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests import ROOT
from tests.kfp.browser import Page, browser
from tests.kfp.server import (
    HOST,
    IMAGES,
    PAGES,
    SEED,
    SHORT,
    Run,
    apply,
    begin,
    forwarded,
    kubectl,
    opened,
    server,
    wait,
)
from understudy.cli import doctor_cluster
from understudy.recipe.file import load
from understudy.steps import step_names

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not HOST, reason="KFP_HOST is not set"),
]
PICTURES = ROOT / "build" / "pictures"
STEPS = sorted(["start", *step_names(load(ROOT / "recipes" / "digits.yaml"))])
EVERY = 20
LONG = f"teacher.train.epochs=2000; teacher.train.checkpoint_every={EVERY}"
REJECTED = "gate.max_size_ratio=0.001"
ADMIN = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": "only-for-development"}
SHOWN = {
    "start.overview": " of 8 results are cached",
    "start.report": "the task gate writes its report",
    "evaluate.metrics": "student/accuracy",
    "evaluate.confusion": "Predicted label",
    "gate.report": "the student may step in",
}
"""The text that a page must show of an artifact that is not in its task's card."""


@pytest.fixture(scope="module", autouse=True)
def applied(tmp_path_factory: pytest.TempPathFactory) -> None:
    apply(tmp_path_factory.mktemp("kfp"))


@pytest.fixture(scope="module")
def first() -> dict[str, Run]:
    """A run that makes everything, and a mistaken one."""
    return {"whole": begin(), "mistaken": begin("gate.margin=7")}


@pytest.fixture(scope="module")
def complete_run(first: dict[str, Run]) -> Run:
    """The run that makes everything, at its end."""
    run = first["whole"]
    assert run.end() == 0, run.messages
    return run


@pytest.fixture(scope="module")
def later(complete_run: Run) -> Iterator[dict[str, Any]]:
    """Runs of what another has made: all of it, and all but a verdict, which is a rejection; one by `submit --wait`.
    And one whose teacher is trained for long.
    """
    changed = [f"--set={change}" for change in [*SHORT, f"seed={SEED}", REJECTED]]
    submit = ["submit", "recipes/digits.yaml", "--images", IMAGES, "--wait", *changed]
    with forwarded() as address:
        command = [sys.executable, "-m", "understudy", "--tracking-uri", address, *submit]
        environment = {**os.environ, **ADMIN}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as submitted:
            long = begin(LONG, seed=SEED + 1, recipe=[*SHORT, "student.control=false"])
            reused, failing = begin(), begin(REJECTED, fails=True)
            yield {"long": long, "reused": reused, "failing": failing, "submitted": submitted}
            submitted.kill()


@pytest.fixture
def training(later: dict[str, Any]) -> Run:
    """A run whose teacher is being trained."""
    run: Run = later["long"]
    wait(lambda: run.steps or run.workflow["status"].get("phase") == "Failed")
    assert run.steps, "an earlier test left it failed"
    return run


def test_the_doctor_finds_nothing() -> None:
    problems = [check for check in doctor_cluster.checks("kubeflow") if not check.ok]
    assert not problems


def test_the_account_of_tasks_may_not_open_ways_to_pods() -> None:
    assert "a launcher's policy is for the ranks of one job" in opened("kubeflow", "pipeline-runner")


def test_a_wrong_override_is_reported_by_the_first_task(first: dict[str, Run]) -> None:
    run = first["mistaken"]
    assert run.end() == 1
    assert run.messages[-1].startswith("failed: start: overrides gate.margin=7: gate.margin: must be less than 1")
    assert run.tasks == ["start"]


def test_a_run_has_every_step_and_lines_of_ranks_stand_in_the_log_once(complete_run: Run) -> None:
    assert complete_run.tasks == STEPS
    assert complete_run.messages[-1] == "succeeded"
    (pod,) = complete_run.pods("teacher", "Succeeded")
    rank_lines = re.findall(r"\[\S+ rank 0\] .*", complete_run.log(pod))
    assert rank_lines
    assert len(rank_lines) == len(set(rank_lines))


def logs_of_the_teacher(run: Run) -> list[str]:
    """The logs of the pods of a run's teacher after one pod was deleted. Where Argo took that one for a failed
    one, as docs/operating/kfp.md says it may, the run is retried.
    """
    if run.workflow["status"].get("phase") == "Failed":
        assert run.end() == 1
        assert "SIGTERM" in run.messages[-1]
        run.do("retry")
        wait(lambda: run.workflow["status"].get("phase") != "Failed", 60)
    return [run.log(pod) for pod in run.pods("teacher")]


def test_a_run_survives_the_deletion_of_a_task_s_pod_and_its_job_is_adopted(training: Run) -> None:
    job, (pod,) = training.jobs, training.pods("teacher")
    kubectl("delete", "pod", pod, "--wait=false")
    wait(lambda: any("which was submitted before" in log for log in logs_of_the_teacher(training)))
    assert training.jobs == job


def test_a_run_that_is_terminated_ends_its_job_and_a_retry_goes_on_from_the_checkpoint(training: Run) -> None:
    wait(lambda: max(training.steps, default=0) > 2 * EVERY)
    training.do("terminate")
    assert training.end() == 1
    words = r"failed: teacher: (this process was asked to end \(SIGTERM\): what is done is kept|terminated \()"
    assert re.match(words, training.messages[-1]), "its own, or Argo's where it had no time for them"
    wait(lambda: not training.jobs, 60)
    training.do("retry")
    assert wait(lambda: training.steps)[0] > EVERY


def test_a_run_that_is_deleted_takes_its_job_with_it(training: Run) -> None:
    assert training.jobs
    training.delete()
    wait(lambda: not training.jobs, 60)


def test_a_run_that_reuses_everything_has_one_task(later: dict[str, Any]) -> None:
    run = later["reused"]
    assert run.end() == 0, run.messages
    assert run.tasks == ["start"]


def test_a_rejection_that_is_to_fail_a_run_names_its_rule(later: dict[str, Any]) -> None:
    run = later["failing"]
    assert run.end() == 1
    assert re.match(r"failed: (start|rejected): rejected by size; ", run.messages[-1])


def test_the_submitting_command_names_the_rule_that_rejected_a_student(later: dict[str, Any]) -> None:
    output, _ = later["submitted"].communicate(timeout=900)
    assert (later["submitted"].returncode, output.splitlines()[-1]) == (3, "rejected by size")


def test_objects_of_the_pipelines_are_taken() -> None:
    if "pipelines.pipelines.kubeflow.org" not in kubectl("get", "crd", "-o", "name"):
        pytest.skip("KFP keeps its pipelines in its database")
    kubectl("apply", "-k", str(ROOT / "manifests/pipelines"))
    listed = wait(
        lambda: {pipeline.display_name for pipeline in server().client().list_pipelines(page_size=50).pipelines or ()}
    )
    assert {"digits", "llm", "pydoc"} <= listed


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if not (PAGES and shutil.which("chromium")):
        pytest.skip("KFP_UI is not set, or there is no chromium")
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def artifacts(page: Page, run: Run) -> list[str]:
    """The artifacts of a run, as its first page draws them: TASK.NAME."""
    page.open(server().page(run.id))
    drawn = wait(lambda: page.read("[...document.querySelectorAll('.react-flow__node')].map(one => one.dataset.id)"))
    assert {f"task.{step}" for step in [*STEPS, "rejected"]} <= set(drawn)
    return [name.removeprefix("artifact.") for name in drawn if name.startswith("artifact.")]


def shows(page: Page, artifact: str, expected: str) -> str:
    """The text of an artifact on a run's page, once it contains the expected text.

    A page that was opened before its data were there stays empty, so it is opened anew.
    """
    frames = "[...document.querySelectorAll('iframe')].map(one => one.srcdoc).join()"
    seen = []

    def look() -> str:
        page.press(f"[data-id='artifact.{artifact}'] button")
        page.press("button", "Visualization")
        time.sleep(1)
        seen.append(f"{page.text}\n{page.read(frames)}")
        _, _, text = seen[-1].partition("Artifact Info\nVisualization\n")
        return text if expected in text else ""

    try:
        return wait(look, 60)
    except AssertionError:
        pytest.fail(f"{artifact} does not show {expected!r}: {seen[-1]}")


def test_the_first_page_shows_every_step_and_something_true_of_each_artifact(complete_run: Run, page: Page) -> None:
    names = artifacts(page, complete_run)
    page.picture(PICTURES / "kfp-run.png")
    for name in names:
        task = name.split(".")[0]
        if task != "rejected":  # was not run
            shows(page, name, SHOWN.get(name, f"{task}: "))


def test_the_page_of_a_reused_run_shows_verdict_and_version(later: dict[str, Any], page: Page) -> None:
    later["reused"].end()
    artifacts(page, later["reused"])
    text = shows(page, "start.overview", "all 8 results are cached")
    page.picture(PICTURES / "kfp-reused.png")
    assert "gate: approved" in text
    assert "register: version " in text
