"""A version is proved by scoring test examples through it, loaded as its users load it."""

import io
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image

from tests.registry.saved_models import SMALL, VIT, describe_images, save
from tests.registry.submitted import RECIPE, Pipeline, connect
from tests.unit.models.loading import loaded
from understudy.data import tokenizer as tokenizers
from understudy.data import tokenizer_files
from understudy.data.images import pixels
from understudy.data.measured import Documents
from understudy.data.records import FILE, Record, write
from understudy.errors import Stopped, UnderstudyError
from understudy.evaluate.loading import KINDS
from understudy.evaluate.scoring import predicted
from understudy.launch.local.platform import LocalPlatform
from understudy.models.narrow import narrowed
from understudy.recipe import Recipe
from understudy.registry.evidence import served
from understudy.registry.server import tracking_uri
from understudy.steps.served import _read, can_be_proved, prove
from understudy.steps.step import Work
from understudy.store.runs import StepState

RESNET = {"type": "resnet", "config": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}}
TEXTS = ["a plain text", "x <|endoftext|> y", "<|endoftext|>", "long " * 12, "and more", "cafe\u0301"]


def text_student(folder: Path, kind: str = "llama", precision: str = "fp32") -> tuple[Path, list[bytes], Any, Any]:
    """A model, its test examples, and the evaluation's results: predictions and losses."""
    tokenizer = tokenizers.train(iter(["a text about <|endoftext|> and more"] * 4), 300)
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    tokenizer_files.write(folder, tokenizer_files.of_trained())
    facts = {
        "task": "causal-lm",
        "vocab_size": tokenizers.vocabulary_size(tokenizer),
        "eos_id": 0,
        "sequence_length": 8,
    }
    spec = {"type": kind, "config": {**SMALL, "max_position_embeddings": 16, "num_key_value_heads": 2}}
    model = save(folder / "model", spec, facts, folder / "tokenizer.json")
    ids = [[*encoding.ids, 0] for encoding in tokenizer.encode_batch(TEXTS, add_special_tokens=False)]
    np.save(folder / "test.tokens.npy", np.concatenate(ids).astype(np.uint16))
    np.save(folder / "test.offsets.npy", np.cumsum([0, *map(len, ids)]))
    np.save(folder / "test.bytes.npy", np.array([len(text.encode()) for text in TEXTS]))
    nll = np.zeros(len(TEXTS))
    with torch.no_grad():
        for batch in Documents(folder, 8, 0, 8).batches(4):
            results = predicted(narrowed(loaded(model), KINDS[precision]), batch, torch.device("cpu"))
            np.add.at(nll, results.examples, results.nll)
    return model, [text.encode() for text in TEXTS], np.array(list(map(len, ids)), float), nll


def image_student(folder: Path, precision: str = "fp32", kind: str = "vit") -> tuple[Path, list[bytes], Any, Any]:
    spec = RESNET if kind == "resnet" else VIT
    model, random, contents = save(folder / "model", spec, describe_images()), np.random.default_rng(0), list[bytes]()
    for _ in range(6):
        stream = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (9, 13, 3), dtype=np.uint8)).save(stream, "PNG")
        contents.append(stream.getvalue())
    with torch.no_grad():
        logits = narrowed(loaded(model), KINDS[precision])(
            torch.from_numpy(np.stack([pixels(content, 8, 1) for content in contents]))
        ).logits.float()
    labels = torch.arange(6) % 3
    return model, contents, np.ones(6), torch.nn.functional.cross_entropy(logits, labels, reduction="none").numpy()


def prepared(
    folder: Path,
    task: str,
    kind: str = "llama",
    harm: Callable[[Path], None] = lambda model: None,
    precision: str = "fp32",
) -> tuple[Pipeline, str, Work, Any]:
    measured = text_student(folder, kind, precision) if task == "causal-lm" else image_student(folder, precision, kind)
    student, contents, predictions, nll = measured
    harm(student)
    labels = [None] * len(contents) if task == "causal-lm" else describe_images()["labels"] * 2
    records = [
        Record(str(at), split, label, content)
        for at, (content, label) in enumerate(zip(contents, labels, strict=True))
        for split in ("train", "test")
    ]
    write(folder / FILE, records)
    recipe = {**RECIPE, "name": "proved", "task": task, "evaluate": {"precision": precision}}
    if task == "causal-lm":
        recipe["data"] = {"source": {"type": "python-docs"}, "text": {"sequence_length": 8}}
    pipeline = Pipeline(folder, tracking_uri(folder / "home", None), recipe)
    digest = pipeline.adopt(student)
    folders = {"measures": folder, "records": folder, "student": pipeline.store.objects.path(digest)}
    np.savez(folder / "per_example.npz", **{"weights.tokens": predictions, "student.nll": nll})
    work = SimpleNamespace(
        input=folders.__getitem__, run=pipeline.run, recipe=pipeline.recipe, report_waiting=lambda text: None
    )
    return pipeline, digest, cast(Work, work), nll


@pytest.mark.parametrize("task", ["causal-lm", "image-classification"])
def test_a_version_is_registered_if_it_gives_the_numbers_that_the_gate_saw(tmp_path: Path, task: str) -> None:
    pipeline, digest, work, nll = prepared(tmp_path, task)
    wrong, last = nll.copy(), len(nll) - 1  # one example that differs is enough
    wrong[last] += 0.1
    np.savez(tmp_path / "per_example.npz", **{"weights.tokens": np.ones(len(nll)), "student.nll": wrong})
    with pytest.raises(UnderstudyError, match=f"nats for example {last} of the test split"):
        pipeline.register(student=digest, prove=lambda version: prove(work, version))
    client = connect(pipeline.uri)
    assert client.search_model_versions("") == []
    np.savez(tmp_path / "per_example.npz", **{"weights.tokens": np.ones(len(nll)), "student.nll": nll})
    registration = pipeline.register(student=digest, prove=lambda version: prove(work, version))
    assert registration.version == "1"
    path = client.download_artifacts(registration.parent_run_id, "served.json", str(tmp_path))
    figures = json.loads(Path(path).read_text())
    assert set(figures) == {"pyfunc", "transformers"}
    assert all(figure["examples"] == len(nll) and figure["largest_difference"] < 1e-4 for figure in figures.values())
    evidence = client.get_model_version("proved", "1").tags["served"]
    assert evidence == served(figures)
    assert f"{len(nll)} test examples" in evidence
    report = Path(client.download_artifacts(registration.parent_run_id, "report.html", str(tmp_path))).read_text()
    assert f"<p>{evidence}</p>" in report
    again = pipeline.register(pipeline.new_run(), student=digest, prove=lambda version: prove(work, version))
    report = Path(client.download_artifacts(again.parent_run_id, "report.html", str(tmp_path))).read_text()
    assert (again.version, f"<p>{evidence}</p>" in report) == ("1", True)


@pytest.mark.parametrize("task", ["causal-lm", "image-classification"])
def test_a_version_is_loaded_in_the_precision_that_it_was_measured_in(tmp_path: Path, task: str) -> None:
    pipeline, digest, work, nll = prepared(tmp_path, task, precision="bf16")
    registration = pipeline.register(student=digest, prove=lambda version: prove(work, version))
    path = connect(pipeline.uri).download_artifacts(registration.parent_run_id, "served.json", str(tmp_path))
    exact = text_student if task == "causal-lm" else image_student
    (tmp_path / "exact").mkdir()
    rounding = np.abs(exact(tmp_path / "exact")[3] - nll).max()
    for loader, figures in json.loads(Path(path).read_text()).items():
        assert figures["largest_difference"] < rounding, loader


def test_a_network_with_batch_normalisation_is_served_in_bf16(tmp_path: Path) -> None:
    pipeline, digest, work, _ = prepared(tmp_path, "image-classification", "resnet", precision="bf16")
    registration = pipeline.register(student=digest, prove=lambda version: prove(work, version))
    path = connect(pipeline.uri).download_artifacts(registration.parent_run_id, "served.json", str(tmp_path))
    figures = json.loads(Path(path).read_text())
    assert figures.keys() == {"pyfunc", "transformers"}
    assert figures["pyfunc"]["largest_difference"] < 1e-6


def test_a_run_that_is_stopped_does_not_wait_for_a_version_s_scores(tmp_path: Path) -> None:
    pipeline, digest, work, _ = prepared(tmp_path, "image-classification")
    pipeline.run.request_stop()
    with pytest.raises(Stopped, match="scoring was stopped"):
        pipeline.register(student=digest, prove=lambda version: prove(work, version))


def labels_exchanged(model: Path) -> None:
    """config.json, which MLflow's way does not read for them, has the labels in another order."""
    config = json.loads((model / "config.json").read_text())
    labels = describe_images()["labels"][::-1]
    config |= {"id2label": dict(enumerate(labels)), "label2id": {label: at for at, label in enumerate(labels)}}
    (model / "config.json").write_text(json.dumps(config))


def other_class(model: Path) -> None:
    """A class of tokenizer that takes rules of its own, as the student's type would without this file."""
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer"}))


@pytest.mark.parametrize(("task", "harm"), [("image-classification", labels_exchanged)])
def test_a_model_that_transformers_alone_answers_differently_is_not_registered(
    tmp_path: Path, task: str, harm: Callable[[Path], None]
) -> None:
    pipeline, digest, work, _ = prepared(tmp_path, task, harm=harm)
    with pytest.raises(UnderstudyError, match="loaded by transformers, the version needs"):
        pipeline.register(student=digest, prove=lambda version: prove(work, version))
    assert connect(pipeline.uri).search_model_versions("") == []


@pytest.mark.parametrize(
    ("kind", "harm", "name"),
    [("qwen2", lambda model: None, "Qwen2Tokenizer"), ("llama", other_class, "Qwen2Tokenizer")],
    ids=["by the model's type", "by the tokenizer's class"],
)
def test_the_evidence_names_characters_that_autotokenizer_reads_as_other_tokens(
    tmp_path: Path, kind: str, harm: Callable[[Path], None], name: str
) -> None:
    pipeline, digest, work, _ = prepared(tmp_path, "causal-lm", kind, harm)
    assert pipeline.register(student=digest, prove=lambda version: prove(work, version)).version == "1"
    evidence = connect(pipeline.uri).get_model_version("proved", "1").tags["served"]
    assert f"uses {name} instead of tokenizer.json; load the tokenizer with PreTrainedTokenizerFast" in evidence


REMOTE = partial(LocalPlatform, remote=True)
"""A cluster, as far as the register step asks; its jobs are processes of this machine."""


def in_a_job(work: Work, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Work:
    """The same work in a step that holds a lease, whose jobs run elsewhere."""
    monkeypatch.setattr("understudy.steps.served.platform", REMOTE)
    lease = pipeline.store.acquire("k" * 64)
    assert lease is not None
    pipeline.run.record(StepState("register", "running"))
    watched = Work("register", pipeline.store, pipeline.run, pipeline.recipe, cast(Any, {}), lease, lease.staging())
    watched.input = work.input  # type: ignore[method-assign]
    return watched


def test_in_a_cluster_a_job_scores_the_files_of_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, digest, work, nll = prepared(tmp_path, "causal-lm")
    work = in_a_job(work, pipeline, monkeypatch)
    registration = pipeline.register(student=digest, prove=lambda version: prove(work, version))
    client = connect(pipeline.uri)
    figures = json.loads(
        Path(client.download_artifacts(registration.parent_run_id, "served.json", str(tmp_path))).read_text()
    )
    assert all(figure["examples"] == len(nll) and figure["largest_difference"] < 1e-4 for figure in figures.values())
    assert set(figures) == {"pyfunc", "transformers"}
    assert not (work.lease.folder.parent / "served").exists()
    assert (work.run.folder / "logs" / "serving" / "served.log").exists()
    assert "not scored" not in client.get_model_version("proved", "1").tags["served"]


def test_a_job_that_scores_otherwise_registers_nothing_and_one_that_goes_on_keeps_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, digest, work, nll = prepared(tmp_path, "image-classification")
    np.savez(tmp_path / "per_example.npz", **{"weights.tokens": np.ones(len(nll)), "student.nll": nll + 0.1})
    work = in_a_job(work, pipeline, monkeypatch)
    with pytest.raises(UnderstudyError, match="the served model differs from the measured one"):
        pipeline.register(student=digest, prove=lambda version: prove(work, version))
    assert connect(pipeline.uri).search_model_versions("") == []

    def cut_off(work: Work, spec: Any) -> Path:
        copies.append(copy(Path(spec.payload.folder)))
        raise SystemExit

    copies: list[dict[str, tuple[int, bytes]]] = []
    monkeypatch.setattr("understudy.steps.served.run_job", cut_off)
    for _ in range(2):
        with pytest.raises(SystemExit):
            pipeline.register(student=digest, prove=lambda version: prove(work, version))
    weights = work.lease.folder.parent / "served" / "version" / "artifacts" / digest / "model.safetensors"
    weights.write_bytes(b"x" + weights.read_bytes()[1:])
    with pytest.raises(SystemExit):
        pipeline.register(student=digest, prove=lambda version: prove(work, version))
    assert copies[0] == copies[1]  # the job that runs reads these very files
    assert {name: content for name, (_, content) in copies[2].items() if not name.endswith("MLmodel")} == {
        name: content for name, (_, content) in copies[0].items() if not name.endswith("MLmodel")
    }


def copy(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes()) for path in files}


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"[]",
        b'{"scores": {"pyfunc": ["1"]}, "tokenizer": ""}',
        b'{"scores": {"pyfunc": [1.0]}}',
        b'{"scores": {"transformers": [1.0]}, "tokenizer": ""}',
        b'{"scores": {"pyfunc": [1.0], "<b>": [1.0]}, "tokenizer": ""}',
        b'{"scores": {"pyfunc": [1.0]}, "tokenizer": "<script>"}',
        b'{"scores": {"pyfunc": [1.0]}, "tokenizer": "' + 2**20 * b"a" + b'"}',
    ],
)
def test_files_written_by_a_models_code_are_only_read_as_numbers(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "scores.json").write_bytes(content)
    with pytest.raises(UnderstudyError, match=r"^register: scores\.json has"):
        _read(tmp_path / "scores.json")


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "link"])
def test_a_path_that_is_no_file_has_no_scores(tmp_path: Path, kind: str) -> None:
    """Reading a pipe or a device would not end."""
    path, target = tmp_path / "scores.json", tmp_path / "other.json"
    target.write_text('{"scores": {"pyfunc": [1.0]}, "tokenizer": ""}')
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "endless" else target)
    with pytest.raises(UnderstudyError, match=r"^register: scores\.json has no scores"):
        _read(path)


def test_a_model_that_was_measured_in_shards_in_a_cluster_is_not_loaded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    unsharded = Recipe.model_validate({**RECIPE, "name": "whole"})
    sharded = unsharded.model_dump(by_alias=True)
    sharded["evaluate"]["strategy"] = "fsdp"
    sharded["resources"]["evaluate"] = {**sharded["resources"]["distill"], "processes": 2}
    recipes = [unsharded, Recipe.model_validate(sharded)]
    assert [can_be_proved(recipe) for recipe in recipes] == [True, True]
    monkeypatch.setattr("understudy.steps.served.platform", REMOTE)
    assert [can_be_proved(recipe) for recipe in recipes] == [True, False]
