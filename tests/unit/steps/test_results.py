"""Results are measured once for each model and shared by runs: the evaluate step with its rank in this process."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.evaluate.small import TEXT, examples, recipe, saved
from tests.unit.steps.test_execution import until
from understudy.agent import evaluation
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.agent.surroundings import Surroundings
from understudy.errors import Stopped, UnderstudyError
from understudy.evaluate import answers
from understudy.evaluate.scoring import Predicted
from understudy.graph import EVALUATION, node_of
from understudy.jobs.payload import Evaluation
from understudy.jobs.specification import JobSpec
from understudy.recipe import Recipe
from understudy.revision import modules_reached
from understudy.steps import evaluate as evaluate_step
from understudy.steps import results as remembers
from understudy.steps.execution import execute
from understudy.steps.identity import MEASURED_BY
from understudy.steps.step import Result, Work
from understudy.store import Run, Store, gc
from understudy.store.objects import Objects
from understudy.store.remote_cache import ADDRESS, RemoteCache

pytestmark = pytest.mark.timeout(60)  # a lease that nobody gives back would be waited for
EMBEDDING = {"factory": "torch.nn:Embedding", "kwargs": {"num_embeddings": 9, "embedding_dim": 9}}
RECIPE = recipe(TEXT, EMBEDDING)
BATCHES = 5  # of 13 windows


class Stage:
    """A store with examples, and the jobs of its runs: which models each was to measure, and its batches."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "store")
        self._folder = folder
        self.jobs: list[list[str]] = []
        self.batches = 0
        self.before_job: Callable[[JobSpec], None] = lambda spec: None
        self.examples = self.store.objects.publish(examples(folder / "examples", TEXT), "examples")

    def model(self, seed: int) -> str:
        """The digest of a model."""
        return self.store.objects.publish(saved(self._folder / f"model-{seed}", EMBEDDING, TEXT, seed), "model")

    def new_run(self, **changes: Any) -> Run:
        recipe = Recipe.model_validate({**RECIPE, **changes})
        return self.store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), "")

    def measured(
        self, teacher: str, student: str, champion: str = "", run: Run | None = None, **changes: Any
    ) -> Result:
        """The measures of a run."""
        inputs = {"examples": self.examples, "teacher": teacher, "student": student}
        inputs |= {"champion": champion} if champion else {}
        run = run or self.new_run(**changes)
        step = evaluate_step.step(node_of(Recipe.model_validate(run.recipe), EVALUATION))
        return execute(step, self.store, run, inputs, {})

    def results(self) -> list[str]:
        """The digests of all results."""
        manifests = {digest: self.store.objects.manifest(digest) for digest in self.store.objects}
        return [digest for digest, manifest in manifests.items() if manifest and manifest.kind == "results"]

    def run_job(self, work: Work, spec: JobSpec) -> Path:
        """Stands in for the launcher."""
        assert isinstance(spec.payload, Evaluation)
        self.jobs.append([role for role in spec.payload.models if role not in spec.payload.known])
        self.before_job(spec)
        Path(spec.folder).mkdir(exist_ok=True)
        evaluation.evaluate(spec, spec.payload, Surroundings(spec, HeartbeatWriter(spec, 0)))
        return spec.output


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    threads, predicted, test_stage = torch.get_num_threads(), answers.predicted, Stage(tmp_path)

    def counted(*arguments: Any, **named: Any) -> Predicted:
        test_stage.batches += 1
        return predicted(*arguments, **named)

    monkeypatch.setattr(evaluate_step, "run_job", test_stage.run_job)
    monkeypatch.setattr(evaluate_step, "platform", lambda: SimpleNamespace(prepare=lambda run: None))
    monkeypatch.setattr(answers, "predicted", counted)
    yield test_stage
    torch.set_num_threads(threads)


def contents_of(result: Result) -> tuple[dict[str, Any], bytes]:
    """All that was measured but for speed."""
    measures = json.loads((result.path / "measures.json").read_text())
    for model in measures["models"].values():
        del model["latency"]
    return measures, (result.path / "per_example.npz").read_bytes()


def test_a_run_with_another_student_measures_that_alone_and_says_what_all_anew_would(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, first, second = (stage.model(seed) for seed in range(3))
    stage.measured(teacher, first)
    assert (stage.jobs, stage.batches) == ([["teacher", "student"]], 2 * BATCHES)
    reused = stage.measured(teacher, second)
    assert (stage.jobs[1:], stage.batches) == ([["student"]], 3 * BATCHES)
    (tmp_path / "anew").mkdir()
    anew = Stage(tmp_path / "anew")
    monkeypatch.setattr(evaluate_step, "run_job", anew.run_job)
    fresh = anew.measured(*(anew.model(seed) for seed in (0, 2)))
    assert anew.jobs == [["teacher", "student"]]
    assert contents_of(fresh) == contents_of(reused)
    assert sorted(path.name for path in reused.path.iterdir()) == ["manifest.json", "measures.json", "per_example.npz"]


def test_the_student_of_one_recipe_is_the_champion_of_another_and_is_not_measured_again(stage: Stage) -> None:
    teacher, first, second = (stage.model(seed) for seed in range(3))
    before = stage.measured(teacher, first)
    result = stage.measured(teacher, second, first, name="other", seed=7)
    assert stage.jobs[1:] == [["student"]]
    with np.load(result.path / "per_example.npz") as now, np.load(before.path / "per_example.npz") as then:
        assert np.array_equal(now["champion.nll"], then["student.nll"])
    manifest = stage.store.objects.manifest(stage.results()[0])
    assert manifest is not None
    assert manifest.inputs.keys() == {"examples", "model"}
    assert {path for path, _, _ in manifest.files} == {"results.npz"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"evaluate": {**RECIPE["evaluate"], "latency": {"repeats": 2}}}, []),
        ({"evaluate": {**RECIPE["evaluate"], "metrics": ["nll"]}}, []),
        ({"evaluate": {**RECIPE["evaluate"], "stride": 6}, "gate": {"metric": "nll"}}, []),
        ({"evaluate": {**RECIPE["evaluate"], "stride": 2}}, ["teacher", "student"]),
        ({"evaluate": {**RECIPE["evaluate"], "precision": "bf16"}}, ["teacher", "student"]),
        ({"evaluate": {**RECIPE["evaluate"], "batch_size": 4}}, ["teacher", "student"]),
    ],
)
def test_what_decides_results_and_what_does_not(stage: Stage, changes: dict[str, Any], expected: list[str]) -> None:
    teacher, student = stage.model(0), stage.model(1)
    stage.measured(teacher, student)
    stage.measured(teacher, student, **changes)
    assert stage.jobs[1:] == [expected]


def test_a_device_and_a_factory_have_results_of_their_own_and_a_factorys_arguments_have_none(
    store: Store,
) -> None:
    def settings(**changes: Any) -> Any:
        return remembers.settings_of(Recipe.model_validate({**RECIPE, **changes}), store)

    def student(**model: Any) -> dict[str, Any]:
        return {"model": {**EMBEDDING, **model}, "train": {"steps": 1}}

    assert settings(seed=3, student=student(kwargs={"num_embeddings": 9, "embedding_dim": 4})) == settings()
    assert settings(student=student(factory="torch.nn:Linear")) != settings()
    assert settings(resources={"evaluate": {"device": "cuda"}}) != settings()


def keys(stage: Stage, inputs: dict[str, str]) -> dict[str, str]:
    """The keys of the models' results by role."""
    roles = [role for role in ("teacher", "student", "champion") if role in inputs]
    inputs = {"examples": stage.examples, **inputs}
    work: Any = SimpleNamespace(
        inputs=inputs,
        recipe=Recipe.model_validate(RECIPE),
        store=stage.store,
        input=lambda role: stage.store.objects.path(inputs[role]),
    )
    return {role: remembers.key_of(parts) for role, parts in remembers.parts_by_role(work, roles).items()}


def test_code_that_a_model_brings_counts_for_all_that_are_measured_beside_it(stage: Stage) -> None:
    models = {role: stage.model(seed) for seed, role in enumerate(("teacher", "student"))}
    before = keys(stage, models)
    path = stage.store.objects.path(models["student"]) / "understudy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "code": {"net.py": "import os"}}))
    assert not set(before.values()) & set(keys(stage, models).values())


def test_a_champion_that_sees_images_of_its_own_shape_has_results_of_their_own(stage: Stage) -> None:
    models = {role: stage.model(seed) for seed, role in enumerate(("teacher", "student", "champion"))}
    before, after = keys(stage, models), keys(stage, {**models, "records": "d" * 64})
    assert before["champion"] != after["champion"]
    assert [before[role] for role in ("teacher", "student")] == [after[role] for role in ("teacher", "student")]


def test_the_keys_of_one_model_in_two_roles_are_one(stage: Stage) -> None:
    model = stage.model(0)
    assert len(set(keys(stage, {"teacher": model, "student": model, "champion": model}).values())) == 1


def test_results_count_the_code_that_scores_and_not_the_code_that_compares_or_times() -> None:
    reached = modules_reached(remembers.MODULES)
    assert {"understudy.evaluate.scoring", "understudy.models.build"} <= reached
    assert "test_split" in MEASURED_BY, "which the task reads"
    unrelated = {f"understudy.evaluate.{name}" for name in ("latency", "statistics", "intervals", "gate", "measure")}
    assert not reached & unrelated


def test_damaged_results_are_measured_again(stage: Stage) -> None:
    teacher, first, second = (stage.model(seed) for seed in range(3))
    intact = stage.measured(teacher, first)
    for digest in stage.results():
        path = stage.store.objects.path(digest) / "results.npz"
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1])
    run = stage.new_run()
    again = stage.measured(teacher, second, run=run)
    assert stage.jobs[1:] == [["teacher", "student"]]
    with np.load(intact.path / "per_example.npz") as before, np.load(again.path / "per_example.npz") as now:
        assert np.array_equal(before["teacher.nll"], now["teacher.nll"])
    assert any("damaged, so evaluate was done again" in note for note in run.notes)


def test_results_of_a_job_that_is_refused_are_not_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, student = stage.model(0), stage.model(1)
    written = answers.write

    def falsify(folder: Path, role: str, results: answers.Results) -> None:
        written(folder, role, {**results, "nll": results["nll"] / 2} if role == "teacher" else results)

    monkeypatch.setattr(answers, "write", falsify)
    with pytest.raises(UnderstudyError, match="in the results of teacher"):
        stage.measured(teacher, student)
    assert not stage.results()
    monkeypatch.setattr(answers, "write", written)
    stage.measured(teacher, student)
    assert stage.jobs == [["teacher", "student"]] * 2


def test_a_job_that_says_something_else_than_what_is_remembered_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, first, second = (stage.model(seed) for seed in range(3))
    stage.measured(teacher, first)
    read = answers.read
    monkeypatch.setattr(answers, "read", lambda path: {**read(path), "nll": read(path)["nll"] * 2})
    with pytest.raises(UnderstudyError, match=r"differs from results\.npz in the results of teacher"):
        stage.measured(teacher, second)


def test_what_was_measured_is_kept_when_the_run_ends_before_its_measures_are(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, student = stage.model(0), stage.model(1)
    conclude = Store.conclude

    def killed(store: Store, *arguments: Any, **named: Any) -> str:
        if arguments[4] == "measures":
            raise OSError("killed")
        return conclude(store, *arguments, **named)

    monkeypatch.setattr(Store, "conclude", killed)
    with pytest.raises(OSError, match="killed"):
        stage.measured(teacher, student)
    monkeypatch.setattr(Store, "conclude", conclude)
    stage.measured(teacher, student)
    assert stage.jobs == [["teacher", "student"], []]


class Beside(threading.Thread):
    """Measures beside the test."""

    def __init__(self, measure: Callable[[], Result]) -> None:
        super().__init__(daemon=True)
        self._measure, self.outcome = measure, list[Result | BaseException]()
        self.start()

    def run(self) -> None:
        try:
            self.outcome.append(self._measure())
        except BaseException as error:
            self.outcome.append(error)


def waits(run: Run) -> bool:
    state = run.state("evaluate")
    return state is not None and "another run measures the teacher" in state.detail


@pytest.fixture
def measuring(stage: Stage) -> Iterator[threading.Event]:
    """Set, and the first job goes on."""
    go_on, first = threading.Event(), threading.Lock()

    def hold(spec: JobSpec) -> None:
        if first.acquire(blocking=False):
            assert go_on.wait(20)

    stage.before_job = hold
    yield go_on
    go_on.set()


def test_of_two_runs_at_once_one_measures_what_both_need(stage: Stage, measuring: threading.Event) -> None:
    teacher, first, second = (stage.model(seed) for seed in range(3))
    first_run = Beside(lambda: stage.measured(teacher, first))
    until(lambda: stage.jobs)
    run = stage.new_run()
    second_run = Beside(lambda: stage.measured(teacher, second, run=run))
    until(lambda: waits(run))
    measuring.set()
    first_run.join(20)
    second_run.join(20)
    assert [type(outcome) for outcome in first_run.outcome + second_run.outcome] == [Result, Result]
    assert stage.jobs == [["teacher", "student"], ["student"]]
    assert len(stage.results()) == 3
    assert not list((stage.store.folder / "work").iterdir())


def test_a_run_that_waits_for_anothers_results_can_be_stopped(stage: Stage, measuring: threading.Event) -> None:
    teacher, first, second = (stage.model(seed) for seed in range(3))
    first_run, run = Beside(lambda: stage.measured(teacher, first)), stage.new_run()
    until(lambda: stage.jobs)
    second_run = Beside(lambda: stage.measured(teacher, second, run=run))
    until(lambda: waits(run))
    run.request_stop()
    second_run.join(20)
    assert isinstance(second_run.outcome[0], Stopped)
    measuring.set()
    first_run.join(20)
    assert isinstance(first_run.outcome[0], Result)


def test_a_disk_that_is_full_leaves_the_work_to_the_next_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, student = stage.model(0), stage.model(1)
    publish = Objects.publish

    def full(objects: Objects, staged: Path, kind: str, *arguments: Any) -> str:
        if kind == "results":
            raise UnderstudyError("the disk is full")
        return publish(objects, staged, kind, *arguments)

    monkeypatch.setattr(Objects, "publish", full)
    with pytest.raises(UnderstudyError, match="the disk is full"):
        stage.measured(teacher, student)
    monkeypatch.setattr(Objects, "publish", publish)
    stage.measured(teacher, student)
    assert stage.jobs == [["teacher", "student"]] * 2


def test_the_next_run_measures_what_one_that_failed_has_left(stage: Stage) -> None:
    teacher, student = stage.model(0), stage.model(1)

    def fail(spec: JobSpec) -> None:
        raise UnderstudyError("the node is gone")

    stage.before_job = fail
    with pytest.raises(UnderstudyError, match="the node is gone"):
        stage.measured(teacher, student)
    stage.before_job = lambda spec: None
    stage.measured(teacher, student)
    assert stage.jobs == [["teacher", "student"]] * 2


def test_a_run_whose_right_to_measure_was_taken_over_keeps_nothing_and_goes_on(stage: Stage) -> None:
    teacher, student = stage.model(0), stage.model(1)

    def take_over(spec: JobSpec) -> None:
        for folder in (stage.store.folder / "work").glob("[0-9a-f]*/1.*"):
            if not Path(spec.folder).is_relative_to(folder):
                os.rename(folder, folder.with_name("2.other"))

    stage.before_job = take_over
    result = stage.measured(teacher, student)
    assert (result.path / "measures.json").exists()
    assert not stage.results()


def test_one_model_in_two_roles_is_kept_once(stage: Stage) -> None:
    teacher, student = stage.model(0), stage.model(1)
    stage.measured(teacher, student, student)
    assert len(stage.results()) == 2
    stage.measured(teacher, student, teacher)
    assert stage.jobs[1:] == [[]]


def test_gc_keeps_results_until_they_are_not_used_any_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "YOUNG", -1.0)
    stage.measured(stage.model(0), stage.model(1))
    results = {stage.store.objects.path(digest) for digest in stage.results()}
    assert len(results) == 2
    for run in stage.store.runs():
        run.end(0)
    assert not results & {removal.path for removal in gc.plan(stage.store, [])}
    removals = gc.plan(stage.store, [], forget_after=-1.0)
    assert results <= {removal.path for removal in removals}
    gc.collect(stage.store, removals, [])
    assert not stage.results()


def test_results_of_another_store_come_from_the_remote_cache(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS, f"file://{tmp_path / 'bucket'}")
    stage.measured(stage.model(0), stage.model(1))
    (tmp_path / "there").mkdir()
    other_stage = Stage(tmp_path / "there")
    monkeypatch.setattr(evaluate_step, "run_job", other_stage.run_job)
    other_stage.measured(*(other_stage.model(seed) for seed in (0, 2)))
    assert other_stage.jobs == [["student"]]


def test_results_that_cannot_be_sent_are_sent_by_the_next_run(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS, f"file://{tmp_path / 'bucket'}")
    send = RemoteCache.send

    def fails(remote: RemoteCache, store: Store, key: str) -> None:
        raise UnderstudyError("the bucket cannot be written")

    teacher, student = stage.model(0), stage.model(1)
    monkeypatch.setattr(RemoteCache, "send", fails)
    with pytest.raises(UnderstudyError, match="cannot be written"):
        stage.measured(teacher, student)
    monkeypatch.setattr(RemoteCache, "send", send)
    stage.measured(teacher, student)
    assert stage.jobs == [["teacher", "student"], []]
    assert len(list((tmp_path / "bucket" / "step-cache").iterdir())) == 3, "two models' results, and measures"
