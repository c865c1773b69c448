"""Registering on a real local MLflow."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.registry.submitted import HISTORY, RECIPE, Pipeline, connect
from understudy.errors import UnderstudyError
from understudy.recipe import Evaluate
from understudy.registry import new_version, pyfunc
from understudy.registry.champion import champion
from understudy.registry.client import server_at
from understudy.registry.register import Registration, is_registered
from understudy.registry.review import review
from understudy.store.files import read_json


@pytest.fixture
def client(local: str) -> MlflowClient:
    return connect(local)


def nested(client: MlflowClient, pipeline: Pipeline, step: str) -> str:
    run_id = read_json(pipeline.run.folder / "mlflow" / f"{step}.json")["run_id"]
    parent = read_json(pipeline.run.folder / "mlflow.json")["run_id"]
    assert client.get_run(run_id).data.tags["mlflow.parentRunId"] == parent
    return str(run_id)


def curve(client: MlflowClient, run_id: str, key: str = "loss") -> list[tuple[int, float]]:
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(run_id, key))


def folders(client: MlflowClient, registration: Registration) -> set[Path]:
    """Of logged models, where this one's is."""
    source = client.get_model_version(registration.name, str(registration.version)).source
    location = client.get_logged_model(source.removeprefix("models:/")).artifact_location
    return set(Path(location.removeprefix("file://")).parents[1].iterdir())


def test_an_approved_student_becomes_the_challenger_with_its_lineage(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register()
    version = client.get_model_version_by_alias(registration.name, "challenger")
    assert str(version.version) == registration.version == "1"
    digest = pipeline.model(b"student", HISTORY)
    assert version.tags["understudy.digest"] == digest
    assert version.tags["understudy.teacher"] == pipeline.model(b"teacher", HISTORY)
    assert version.tags["understudy.run"] == pipeline.run.id
    assert version.tags["verdict"] == "approved"
    assert version.tags["student.accuracy"] == "0.975"
    assert version.run_id == registration.parent_run_id
    assert "accuracy is 0.010 below" in version.description
    assert "| accuracy | 0.975 [0.96, 0.99] |" in version.description
    assert is_registered(pipeline.uri, registration, digest)
    assert not is_registered(pipeline.uri, registration, "another digest")
    assert champion(pipeline.uri, registration.name) is None


def test_the_parent_run_has_recipe_evidence_and_verdict(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register()
    parent = client.get_run(registration.parent_run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.params["student.distill.logits.temperature"] == "2.0"
    assert parent.data.metrics["teacher.accuracy"] == 0.975
    assert parent.data.tags["verdict"] == "approved"
    artifacts = {artifact.path for artifact in client.list_artifacts(registration.parent_run_id)}
    assert artifacts == {"measures.json", "verdict.json", "report.html", "plots", "recipe.yaml", "served.json"}


def test_the_run_is_described_and_its_data_set_linked(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register()
    run = client.get_run(registration.parent_run_id)
    note = run.data.tags["mlflow.note.content"]
    assert note.startswith("Recipe **digits**, image-classification: the student vit learns from the teacher vit.")
    assert "| accuracy | 0.975 [0.96, 0.99] |" in note
    assert "The student passed the gate on 360 examples" in note
    assert f"Registered as {registration.name} version 1." in note
    (linked,) = run.inputs.dataset_inputs
    assert (linked.dataset.name, linked.dataset.digest, linked.dataset.source_type) == ("digits", "e" * 36, "digits")
    assert json.loads(linked.dataset.profile)["counts"] == {"train": 4, "validation": 0, "test": 2}
    assert "mlflow_tensorspec" in linked.dataset.schema
    for step, context in (("teacher", "training"), ("evaluate", "evaluation")):
        (linked,) = client.get_run(nested(client, pipeline, step)).inputs.dataset_inputs
        assert [(tag.key, tag.value) for tag in linked.tags] == [("mlflow.data.context", context)]


def test_the_note_of_a_rejected_students_run_gives_the_verdict(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register(approved=False)
    note = client.get_run(registration.parent_run_id).data.tags["mlflow.note.content"]
    assert "did not pass" in note
    assert "Not registered." in note


@pytest.mark.parametrize("step", ["teacher", "distill", "control"])
def test_curves_equal_the_history(pipeline: Pipeline, client: MlflowClient, step: str) -> None:
    pipeline.register()
    run_id = nested(client, pipeline, step)
    for key in ("loss", "learning_rate", "grad_norm"):
        assert curve(client, run_id, key) == [(point["step"], point[key]) for point in HISTORY]
    assert client.get_run(run_id).info.status == "FINISHED"
    assert client.get_run(run_id).data.metrics["accuracy"] == 0.975


def test_a_rejected_student_leaves_its_evidence_and_no_alias_moves(pipeline: Pipeline, client: MlflowClient) -> None:
    first = pipeline.register()
    client.set_registered_model_alias(first.name, "champion", first.version)
    second = pipeline.register(run=pipeline.new_run(), approved=False, weights=b"weak student")
    assert second.version is None
    run = client.get_run(second.parent_run_id)
    assert run.data.tags["verdict"] == "rejected"
    assert "report.html" in {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
    assert server_at(pipeline.uri).aliases(first.name) == {"challenger": "1", "champion": "1"}
    assert len(client.search_model_versions(f"name = '{first.name}'")) == 1
    assert is_registered(pipeline.uri, second, "whatever")


def test_registering_again_after_a_crash_makes_nothing_twice(
    pipeline: Pipeline, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("crash")

    for method in ("create_registered_model", "create_model_version", "set_registered_model_alias"):
        with monkeypatch.context() as patch:
            patch.setattr(MlflowClient, method, crash)
            with pytest.raises(RuntimeError, match="crash"):
                pipeline.register()
    registration = pipeline.register()
    again = pipeline.register()
    assert again == registration
    assert len(client.search_model_versions(f"name = '{registration.name}'")) == 1
    experiment = client.get_run(registration.parent_run_id).info.experiment_id
    assert len(client.search_logged_models([experiment])) == 1
    assert len(client.search_runs([experiment])) == 5
    assert curve(client, nested(client, pipeline, "distill")) == [(p["step"], p["loss"]) for p in HISTORY]
    assert len(client.get_metric_history(registration.parent_run_id, "student.accuracy")) == 1


def test_of_an_upload_that_broke_off_nothing_is_left_here(
    pipeline: Pipeline, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    earlier, run = pipeline.register(), pipeline.new_run()
    before = folders(client, earlier)
    begun = set(before)
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(new_version, "send_model", full)
            with pytest.raises(UnderstudyError, match="the disk is full"):
                pipeline.register(run=run, weights=b"another student")
        begun |= folders(client, earlier)
        assert len(folders(client, earlier)) == len(before) + 1
    pipeline.register(run=run, weights=b"another student")
    assert len(begun) == len(before) + 3
    assert len(folders(client, earlier)) == len(before) + 1
    assert before < folders(client, earlier)


def test_the_challenger_moves_to_the_next_approved_student(pipeline: Pipeline, client: MlflowClient) -> None:
    pipeline.register()
    registration = pipeline.register(run=pipeline.new_run(), weights=b"better student")
    assert server_at(pipeline.uri).aliases(registration.name) == {"challenger": registration.version}
    assert registration.version == "2"


def test_an_old_student_that_is_registered_again_takes_no_alias_from_a_newer_version(
    pipeline: Pipeline, client: MlflowClient
) -> None:
    first = pipeline.register()
    pipeline.register(run=pipeline.new_run(), weights=b"better student")
    again = pipeline.register(run=pipeline.new_run())
    assert (again.version, again.stays) == (first.version, "version 2, which has it, is newer")
    client.set_registered_model_alias(first.name, "champion", "2")
    client.delete_registered_model_alias(first.name, "challenger")
    again = pipeline.register(run=pipeline.new_run())
    assert (again.version, again.stays) == (first.version, "version 2, the champion, is newer")
    assert server_at(pipeline.uri).aliases(first.name) == {"champion": "2"}


def test_the_alias_that_a_reviewer_removed_does_not_go_to_an_older_version(
    pipeline: Pipeline, client: MlflowClient
) -> None:
    first = pipeline.register()
    pipeline.register(run=pipeline.new_run(), weights=b"better student")
    client.create_model_version(first.name, "s3://bucket/elsewhere")  # not the pipeline's: it has no verdict
    client.delete_registered_model_alias(first.name, "challenger")
    assert pipeline.register(run=pipeline.new_run()).stays == "version 2 was approved later"
    assert server_at(pipeline.uri).aliases(first.name) == {}
    assert pipeline.register(run=pipeline.new_run(), weights=b"better student").stays == ""
    assert server_at(pipeline.uri).aliases(first.name) == {"challenger": "2"}


def test_the_champion_does_not_become_its_own_challenger(pipeline: Pipeline, client: MlflowClient) -> None:
    first = pipeline.register()
    client.set_registered_model_alias(first.name, "champion", first.version)
    client.delete_registered_model_alias(first.name, "challenger")
    assert pipeline.register(run=pipeline.new_run()).stays == "version 1 is the champion"
    assert server_at(pipeline.uri).aliases(first.name) == {"champion": "1"}
    newer = pipeline.register(run=pipeline.new_run(), weights=b"better student")
    assert (newer.version, newer.stays) == ("2", "")
    assert server_at(pipeline.uri).aliases(first.name) == {"champion": "1", "challenger": "2"}


def test_another_run_of_the_same_student_makes_no_second_version(pipeline: Pipeline, client: MlflowClient) -> None:
    first = pipeline.register()
    again = pipeline.register(run=pipeline.new_run())
    assert again.version == first.version
    assert again.parent_run_id != first.parent_run_id
    assert len(client.search_model_versions(f"name = '{first.name}'")) == 1


def test_a_student_that_was_measured_otherwise_is_another_version(pipeline: Pipeline) -> None:
    versions = []
    for changed in ({}, {"precision": "bf16"}, {"stride": 4}, {}):
        evaluate = Evaluate.model_validate(changed)
        pipeline.recipe = pipeline.recipe.model_copy(update={"evaluate": evaluate})
        versions.append(pipeline.register(pipeline.new_run()).version)
    assert versions == ["1", "2", "3", "1"]


def test_registering_does_not_import_torch(pipeline: Pipeline) -> None:
    pipeline.register()
    code = (
        "import sys, json; from pathlib import Path\n"
        "from understudy.registry import pyfunc; from mlflow.models import Model\n"
        "from understudy.recipe import Evaluate\n"
        f"pyfunc.write(Path({str(pipeline.run.folder)!r}) / 'version', "
        f"Path({str(pipeline.store.objects.path(pipeline.model(b'student', HISTORY)))!r}), Model(), Evaluate())\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"})


def test_a_model_that_cannot_be_served_alone_is_refused(pipeline: Pipeline) -> None:
    facts = {"kind": "factory", "factory": "understudy.models.build:build", "task": "image-classification"}
    folder = pipeline.run.folder / "own"
    folder.mkdir()
    (folder / "understudy.json").write_text(json.dumps(facts))
    with pytest.raises(UnderstudyError, match="imports understudy"):
        pyfunc.write(pipeline.run.folder / "version", folder, None, Evaluate())


def test_a_control_is_registered_as_a_control(tmp_path: Path, local: str, client: MlflowClient) -> None:
    """Name, tags, files and evidence: nobody takes it for a distilled student, nor for a version of that one's name."""
    pipeline = Pipeline(tmp_path / "control", local, {**RECIPE, "register": {"control": True}})
    registration = pipeline.register()
    assert (registration.name, registration.candidate) == ("digits-control", "control")
    version = client.get_model_version_by_alias("digits-control", "challenger")
    assert version.tags["understudy.candidate"] == "control"
    assert version.tags["understudy.digest"] == pipeline.model(b"control", HISTORY)
    assert version.description.startswith("The control passed the gate")
    assert client.get_logged_model(version.source.removeprefix("models:/")).name == "control"
    shown = review(local, "digits-control")
    assert shown.verdict["candidate"] == "control"


def test_the_recovered_share_is_a_metric_and_a_tag(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register()
    assert client.get_run(registration.parent_run_id).data.metrics["recovered_share"] == 0.5
    version = client.get_model_version(registration.name, str(registration.version))
    assert version.tags["recovered"] == "the student recovered 50 % of the gap between control and teacher"
    assert "The student recovered 50 % of the gap" in version.description
    assert version.tags["understudy.candidate"] == "student"
