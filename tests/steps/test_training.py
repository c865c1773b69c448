from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.jobs.specs import job_spec
from understudy.errors import FAILED, STOPPED, Fenced, InputError, Stopped, UnderstudyError
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes import api, owner, settings, task_config
from understudy.launch.kubernetes.api import Object, Refused
from understudy.launch.kubernetes.kind import JobKind
from understudy.recipe import PretrainedModel, Resources
from understudy.recipe.file import load
from understudy.steps import evaluation, training
from understudy.steps.execution import Work


class Cluster:
    """Knows of no job, and accepts none."""

    submitted: Object

    def jobs(self, kind: JobKind, selector: str) -> list[Object]:
        return []

    def create_job(self, kind: JobKind, job: Object) -> None:
        Cluster.submitted = job
        raise Refused("no")


def test_the_job_of_a_step_is_submitted_with_what_is_set_on_its_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(settings.LAUNCHER, "pytorchjob")
    monkeypatch.setattr("understudy.steps.training.cluster_settings", lambda: settings.Cluster(image="i", claim="c"))
    monkeypatch.setattr(api, "Kube", Cluster)
    monkeypatch.setattr(owner, "owner_reference", lambda *_: None)
    monkeypatch.setenv(task_config.VARIABLE, "{}")
    task_config.hand_over({"node_selector": {"gpu": "h100"}})
    nothing: Any = lambda *_, **__: None  # noqa: E731
    run = SimpleNamespace(id="run", facts={"started": 0}, stop_requested=False, state=nothing)
    lease = SimpleNamespace(folder=tmp_path / "key" / "1", check=nothing)
    work = SimpleNamespace(step="teacher", run=run, lease=lease, progress=nothing)
    folder, logs = str(tmp_path / "job"), str(tmp_path / "logs")
    spec = job_spec(folder, logs=logs, supervised=True)
    _, outcome = training._launched(cast(Work, work), spec, Resources())
    assert "was not accepted: no" in outcome.message
    made = Cluster.submitted["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert made["nodeSelector"] == {"gpu": "h100"}


@pytest.mark.parametrize(
    ("outcome", "raised"),
    [
        (Outcome(STOPPED, "stopped at step 3"), Stopped),
        (Outcome(InputError.exit_code, "no such label"), InputError),
        (Outcome(FAILED, "rank 0 ended"), UnderstudyError),
    ],
)
def test_how_a_training_ended_is_what_its_record_hears(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome, raised: type[UnderstudyError]
) -> None:
    heard: list[type[BaseException]] = []

    @contextmanager
    def recorded(*_: object) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            heard.append(type(error))
            raise

    monkeypatch.setattr(training, "expect_jobs", lambda *_: None)
    monkeypatch.setattr(training, "_recorded", recorded)
    monkeypatch.setattr(training, "_launched", lambda work, spec, resources: (spec, outcome))
    work = SimpleNamespace(step="teacher", recipe=None, run=None)
    with pytest.raises(raised, match=outcome.message):
        training._train(cast(Work, work), cast(JobSpec, None), Resources())
    assert heard == [raised]


def test_models_are_measured_on_what_the_steps_own_pod_has(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(Path("recipes/digits.yaml"), ["resources.distill.pool=gpu"])
    pools = {"gpu": {"gpu": "nvidia.com/gpu"}}
    cluster = settings.Cluster.model_validate({"image": "i", "claim": "c", "pools": pools})
    monkeypatch.setenv(settings.LAUNCHER, "pytorchjob")
    monkeypatch.setattr("understudy.steps.training.cluster_settings", lambda: cluster)
    monkeypatch.setattr(evaluation, "device_here", lambda: "cpu")
    assert training.device(recipe.resources.distill) == "cuda"
    assert evaluation._device(recipe) == "cpu", "a pod without a GPU evaluates what was trained on GPUs"


@pytest.mark.parametrize(("resources", "threads"), [({}, 7), ({"cpu": "2500m"}, 2), ({"cpu": "100m"}, 1)])
def test_a_single_process_in_a_cluster_takes_the_cores_that_it_asks_for(
    monkeypatch: pytest.MonkeyPatch, resources: dict[str, Any], threads: int
) -> None:
    monkeypatch.setenv(settings.LAUNCHER, "pytorchjob")
    monkeypatch.setattr(training.os, "cpu_count", lambda: 7)
    assert training._threads(Resources(**resources)) == threads
    assert training._threads(Resources(**resources, processes=2)) == 1
    assert training._threads(Resources(**resources, threads=3)) == 3


def test_what_a_launcher_before_has_fetched_is_not_fetched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched: list[Path] = []

    def fetch(model: object, examples: object, folder: Path, *_: object) -> None:
        fetched.append(folder)
        (folder / "half").touch()
        if len(fetched) == 1:
            raise UnderstudyError("the hub is away")
        (folder / "config.json").touch()

    monkeypatch.setattr(training.pretrained, "fetch", fetch)
    lease = SimpleNamespace(folder=tmp_path, epoch=1, check=lambda: None)
    work = cast(Work, SimpleNamespace(lease=lease, progress=lambda *_, **__: None, input=lambda _: tmp_path))
    model = PretrainedModel(pretrained=str(tmp_path))
    with pytest.raises(UnderstudyError, match="away"):
        training._fetched(work, model, "teacher.model", "new")
    lease.epoch = 2
    for _ in range(2):
        initial = training._fetched(work, model, "teacher.model", "new")
        assert initial is not None
        assert {path.name for path in initial.iterdir()} == {"config.json", "half"}
    assert len(fetched) == 2
    assert [path.name for path in tmp_path.glob("initial*")] == ["initial"], "half a model is not kept"


def test_a_launcher_that_lost_its_lease_leaves_the_model_of_the_next_one_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lost() -> None:
        raise Fenced("another run has taken this step over")

    monkeypatch.setattr(training.pretrained, "fetch", lambda *_: None)
    lease = SimpleNamespace(folder=tmp_path, epoch=1, check=lost)
    work = cast(Work, SimpleNamespace(lease=lease, progress=lambda *_, **__: None, input=lambda _: tmp_path))
    with pytest.raises(Fenced):
        training._fetched(work, PretrainedModel(pretrained=str(tmp_path)), "teacher.model", "new")
    assert not (tmp_path / "initial").exists()
