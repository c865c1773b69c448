import io
import json
import math
import shutil

import numpy as np
import pytest
import torch
from PIL import Image as PictureFile
from sklearn.metrics import f1_score
from torch import nn

from tests.unit.models.loading import loaded
from tests.unit.models.sections import section
from understudy.data.records import Record, write
from understudy.errors import InputError, UnderstudyError
from understudy.evaluate.gate import decide
from understudy.evaluate.measure import measure
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.files import save_model
from understudy.recipe import Recipe
from understudy.recipe.tasks import load

FACTORIES = """
import torch
from PIL import Image as PictureFile
from torch import nn

def linear(num_labels, image_size, num_channels):
    return nn.Sequential(nn.Flatten(), nn.Linear(num_channels * image_size**2, num_labels))

def broken(num_labels, image_size, num_channels):
    model = linear(num_labels, image_size, num_channels)
    model.register_forward_hook(lambda module, inputs, logits: torch.where(inputs[0].sum() > 0, logits, torch.nan))
    return model
"""
LABELS = ["cat", "dog", "hen"]
COUNTS = {"counts": {"train": 40, "validation": 5, "test": 20}, "skipped": 1}
SHAPE = {"image": {"size": 4, "channels": 1}, "mean": [0.5], "std": [0.2]}
IMAGES = {"task": "image-classification", "labels": LABELS, **SHAPE, **COUNTS}
TEXT = {**COUNTS, "task": "causal-lm", "vocab_size": 9, "eos_id": 0, "sequence_length": 6}


LINEAR = {"factory": "made_here:linear"}
EMBEDDING = {"factory": "torch.nn:Embedding", "kwargs": {"num_embeddings": 9, "embedding_dim": 9}}


def recipe_for(task, student=None, **sections):
    source = {"type": "digits"} if task == "image-classification" else {"type": "python-docs"}
    model = LINEAR if task == "image-classification" else EMBEDDING
    train = {"steps": 1}
    return Recipe.model_validate(
        {
            "name": "here",
            "task": task,
            "data": {"source": source},
            "teacher": {"model": model, "train": train},
            "student": {"model": student or model, "train": train},
            "evaluate": {"batch_size": 7, "latency": {"repeats": 3}},
            **sections,
        }
    )


def saved(folder, spec, examples, seed):
    folder.mkdir()
    description = describe(section(spec), examples, "teacher.model")
    torch.manual_seed(seed)
    save_model(folder, build_model(description).state_dict(), description)
    return folder


@pytest.fixture
def image_examples(tmp_path, monkeypatch):
    (tmp_path / "made_here.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "examples"
    folder.mkdir()
    generator = np.random.default_rng(0)
    (folder / "examples.json").write_text(json.dumps(IMAGES))
    np.save(folder / "test.images.npy", generator.integers(0, 255, (30, 1, 4, 4), dtype=np.uint8))
    np.save(folder / "test.labels.npy", np.arange(30) % 3)
    np.save(folder / "train.labels.npy", np.array([0, 1, 1, 2]))
    return folder


@pytest.fixture
def text_examples(tmp_path):
    folder = tmp_path / "examples"
    folder.mkdir()
    generator = np.random.default_rng(0)
    texts = [[*generator.integers(1, 9, length), 0] for length in (0, 3, 6, 11, 25, 8, 2, 17)]
    (folder / "examples.json").write_text(json.dumps(TEXT))
    np.save(folder / "test.tokens.npy", np.concatenate(texts).astype(np.uint16))
    np.save(folder / "test.offsets.npy", np.cumsum([0, *map(len, texts)]))
    np.save(folder / "train.tokens.npy", np.array([1, 1, 2, 0], dtype=np.uint16))
    np.save(folder / "test.bytes.npy", np.array([4 * (len(text) - 1) for text in texts]))
    return folder


def run(tmp_path, folders, examples, recipe, records=None):
    out = tmp_path / "measures"
    out.mkdir()
    reports = []
    digests = {role: role[0] * 64 for role in folders}

    def tell(done, total, unit):
        reports.append((done, total, unit))

    measure(folders, digests, examples, recipe, out, "cpu", tell, records)
    assert reports[-1] == (len(reports), len(reports), "batches")
    return json.loads((out / "measures.json").read_text()), dict(np.load(out / "per_example.npz"))


def test_images_are_measured_as_by_hand(tmp_path, image_examples):
    folders = {role: saved(tmp_path / role, LINEAR, IMAGES, seed) for seed, role in enumerate(("teacher", "student"))}
    measures, arrays = run(tmp_path, folders, image_examples, recipe_for("image-classification"))
    images, labels = (torch.from_numpy(np.load(image_examples / f"test.{part}.npy")) for part in ("images", "labels"))
    logits = loaded(folders["student"])(images).logits.detach()
    student = measures["models"]["student"]
    assert student["metrics"]["nll"] == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), rel=1e-5)
    assert student["metrics"]["accuracy"] == pytest.approx((logits.argmax(dim=1) == labels).double().mean().item())
    assert student["intervals"]["nll"][0] < student["metrics"]["nll"] < student["intervals"]["nll"][1]
    assert (student["parameters"], student["digest"]) == (17 * 3, "s" * 64)
    assert student["bytes"] == (folders["student"] / "model.safetensors").stat().st_size
    assert student["flops"] == 2 * 16 * 3
    assert student["latency"]["batch_size"] == 1
    assert arrays["student.nll"].sum() == pytest.approx(30 * student["metrics"]["nll"])
    assert [(row["slice"], row["examples"]) for row in measures["slices"]] == [(label, 10) for label in LABELS]
    mean = sum(row["student"] for row in measures["slices"]) / 3
    assert mean == pytest.approx(student["metrics"]["accuracy"])
    counts = np.zeros((3, 3), dtype=int)
    np.add.at(counts, (labels.numpy(), logits.argmax(dim=1).numpy()), 1)
    assert measures["confusion"] == {"labels": LABELS, "counts": counts.tolist()}
    assert measures["hardware"]["torch"] == torch.__version__
    assert arrays["trivial.correct"].sum() == 10, "the trivial predictor gives the most frequent label in training"


def test_a_champion_of_another_image_size_is_measured_on_images_of_its_own(tmp_path, image_examples):
    (tmp_path / "records").mkdir()
    grey = [PictureFile.new("L", (9, 9), 8 * n) for n in range(30)]
    streams = [io.BytesIO() for _ in grey]
    for picture, stream in zip(grey, streams, strict=True):
        picture.save(stream, "PNG")
    write(
        tmp_path / "records" / "records.parquet",
        [Record(f"{n:064}", "test", LABELS[n % 3], stream.getvalue()) for n, stream in enumerate(streams)],
    )
    larger = {**IMAGES, "image": {"size": 8, "channels": 1}}
    folders = {role: saved(tmp_path / role, LINEAR, IMAGES, seed) for seed, role in enumerate(("teacher", "student"))}
    folders["champion"] = saved(tmp_path / "champion", LINEAR, larger, 2)
    measures, arrays = run(tmp_path, folders, image_examples, recipe_for("image-classification"), tmp_path / "records")
    champion = loaded(folders["champion"])
    images = torch.stack([torch.full((1, 8, 8), 8 * n, dtype=torch.uint8) for n in range(30)])
    expected = nn.functional.cross_entropy(champion(images).logits.detach(), torch.arange(30) % 3, reduction="none")
    np.testing.assert_allclose(arrays["champion.nll"], expected, rtol=1e-5)
    assert measures["models"]["champion"]["flops"] == 2 * 64 * 3
    written = [*(f"{role}.results.npz" for role in folders), "measures.json", "per_example.npz"]
    assert {path.name for path in (tmp_path / "measures").iterdir()} == set(written), "and nothing of its images"


def test_text_is_measured_as_by_hand(tmp_path, text_examples):
    folders = {role: saved(tmp_path / role, EMBEDDING, TEXT, seed) for seed, role in enumerate(("teacher", "student"))}
    measures, arrays = run(tmp_path, folders, text_examples, recipe_for("causal-lm"))
    tokens = torch.from_numpy(np.load(text_examples / "test.tokens.npy").astype(np.int64))
    logits = loaded(folders["student"])(torch.cat([torch.zeros(1).long(), tokens[:-1]])).logits
    total = nn.functional.cross_entropy(logits, tokens, reduction="sum").item()
    metrics = measures["models"]["student"]["metrics"]
    assert list(metrics) == ["bits_per_byte", "perplexity", "nll", "accuracy", "calibration_error"]
    assert metrics["nll"] == pytest.approx(total / len(tokens), rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(math.exp(total / len(tokens)), rel=1e-5)
    assert metrics["bits_per_byte"] == pytest.approx(total / math.log(2) / arrays["weights.bytes"].sum(), rel=1e-5)
    assert measures["confusion"] is None
    assert measures["slices"][0]["slice"] == "shortest quarter: 0 to 8 bytes"
    assert sum(row["examples"] for row in measures["slices"]) == measures["examples"] == 8


def test_a_model_completes_the_same_beginnings_as_by_hand(tmp_path, text_examples):
    model = {"type": "llama", "config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}}
    folders = {role: saved(tmp_path / role, model, TEXT, seed) for seed, role in enumerate(("teacher", "student"))}
    recipe = recipe_for("causal-lm", model, teacher={"model": model, "train": {"steps": 1}})
    _, arrays = run(tmp_path, folders, text_examples, recipe)
    text, offsets = (np.load(text_examples / f"test.{name}.npy").astype(np.int64) for name in ("tokens", "offsets"))
    long = np.flatnonzero(np.diff(offsets) >= 6)
    chosen = long[np.linspace(0, len(long) - 1, min(4, len(long))).astype(int)]
    for role, folder in folders.items():
        network, expected = loaded(folder), []
        for document in chosen:
            ids = [TEXT["eos_id"], *text[offsets[document] :][:3]]
            for _ in range(3):
                ids.append(int(network(torch.tensor([ids])).logits[0, -1].argmax()))
            expected.append(ids[-3:])
        assert arrays[f"{role}.completions"].tolist() == expected
    assert not np.array_equal(arrays["teacher.completions"], arrays["student.completions"])


SMALL = {"d_model": 8, "num_layers": 1, "attention_heads": 2, "ffn_dim": 8, "tie_word_embeddings": False}
XGLM = {"type": "xglm", "config": SMALL}
"""Adds sines in fp32, for weights of any precision."""


@pytest.mark.parametrize("role", ["teacher", "student", "champion"])
def test_a_model_that_does_not_compute_in_the_precision_is_named(tmp_path, text_examples, role):
    models = {"teacher": EMBEDDING, "student": EMBEDDING, "champion": EMBEDDING} | {role: XGLM}
    folders = {role: saved(tmp_path / role, model, TEXT, 0) for role, model in models.items()}
    sections = {"teacher": {"model": models["teacher"], "train": {"steps": 1}}, "evaluate": {"precision": "bf16"}}
    recipe = recipe_for("causal-lm", models["student"], **sections)
    with pytest.raises(InputError, match=rf"^evaluate\.precision: bf16: the {role} does not compute in it \(.*fp32$"):
        run(tmp_path, folders, text_examples, recipe)


def test_the_recipes_stride_is_how_far_windows_of_text_move(tmp_path, text_examples):
    model = {"type": "llama", "config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}}
    folders = {role: saved(tmp_path / role, model, TEXT, seed) for seed, role in enumerate(("teacher", "student"))}
    arrays = {}
    for stride in (None, 6, 1):
        (tmp_path / str(stride)).mkdir()
        recipe = recipe_for("causal-lm", model, teacher={"model": model, "train": {"steps": 1}})
        recipe = recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"stride": stride})})
        arrays[stride] = run(tmp_path / str(stride), folders, text_examples, recipe)[1]
    assert all(np.array_equal(arrays[None][name], arrays[6][name]) for name in arrays[None])
    text = np.load(text_examples / "test.tokens.npy").astype(np.int64)
    begin, end = np.load(text_examples / "test.offsets.npy")[4:6]
    network, expected = loaded(folders["student"]), 0.0
    for position in range(begin, end):
        inputs = torch.from_numpy(text[max(begin, position + 1 - 6) - 1 : position])[None]
        logits = network(inputs).logits[0, -1].detach()
        expected -= logits.log_softmax(dim=-1)[text[position]].item()
    assert arrays[1]["student.nll"][4] == pytest.approx(expected, rel=1e-5)
    assert arrays[1]["student.nll"][4] != pytest.approx(arrays[6]["student.nll"][4], rel=1e-4)


def test_a_model_that_gives_nan_is_not_measured_and_fails_the_gate(tmp_path, image_examples):
    np.save(image_examples / "test.images.npy", np.zeros((30, 1, 4, 4), dtype=np.uint8))
    folders = {
        role: saved(tmp_path / role, {"factory": f"made_here:{factory}"}, IMAGES, 0)
        for role, factory in (("teacher", "linear"), ("student", "broken"))
    }
    recipe = recipe_for("image-classification", {"factory": "made_here:broken"})
    measures, arrays = run(tmp_path, folders, image_examples, recipe)
    assert measures["models"]["student"]["metrics"] == dict.fromkeys(recipe.metrics)
    assert measures["models"]["student"]["intervals"] == dict.fromkeys(recipe.metrics)
    assert measures["models"]["student"]["calibration"] == []
    assert measures["models"]["teacher"]["metrics"]["accuracy"] is not None
    assert {row["student"] for row in measures["slices"]} == {None}
    assert not np.sum(measures["confusion"]["counts"]), "no answer is no answer for the first label"
    assert not decide(measures, arrays, recipe.gate, recipe.gate_metric)["approved"]


def test_code_that_a_rank_plants_in_its_models_description_is_not_run(tmp_path, image_examples):
    """Who measures may hold more rights than who trained."""
    planted = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\ndef net(**known): ...\n"
    (tmp_path / "planted.py").write_text(planted)
    folders = {role: saved(tmp_path / role, LINEAR, IMAGES, 0) for role in ("teacher", "student")}
    path = folders["student"] / "understudy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "factory": "planted:net"}))
    with pytest.raises(UnderstudyError, match=r"student/understudy\.json: is no student\.model of this recipe"):
        run(tmp_path, folders, image_examples, recipe_for("image-classification"))
    assert not (tmp_path / "ran").exists()


def test_measuring_again_gives_the_same_numbers(tmp_path, text_examples):
    folders = {role: saved(tmp_path / role, EMBEDDING, TEXT, 0) for role in ("teacher", "student")}
    recipe = recipe_for("causal-lm")
    outputs = [tmp_path / "first", tmp_path / "second"]
    for folder in outputs:
        folder.mkdir()
    first, second = (run(folder, folders, text_examples, recipe) for folder in outputs)
    assert first[1].keys() == second[1].keys()
    assert all(np.array_equal(first[1][name], second[1][name]) for name in first[1])
    assert first[0]["models"]["student"]["intervals"] == second[0]["models"]["student"]["intervals"]


def test_an_empty_test_split_is_refused_by_the_recipes_path(tmp_path, image_examples):
    np.save(image_examples / "test.images.npy", np.zeros((0, 1, 4, 4), dtype=np.uint8))
    np.save(image_examples / "test.labels.npy", np.zeros(0, dtype=np.int64))
    with pytest.raises(InputError, match=r"data\.test: the test split is empty"):
        run(tmp_path, {}, image_examples, recipe_for("image-classification"))


def test_only_the_recipes_metrics_are_measured(tmp_path, image_examples):
    folders = {role: saved(tmp_path / role, LINEAR, IMAGES, 0) for role in ("teacher", "student")}
    recipe = recipe_for("image-classification", evaluate={"metrics": ["nll"], "latency": {"repeats": 1}})
    measures, _ = run(tmp_path, folders, image_examples, recipe)
    assert list(measures["models"]["student"]["metrics"]) == ["accuracy", "nll"], "the gate's metric comes along"


@pytest.mark.parametrize(
    ("task", "model", "facts"), [("image-classification", LINEAR, IMAGES), ("causal-lm", EMBEDDING, TEXT)]
)
def test_models_are_measured_in_the_recipes_precision(tmp_path, image_examples, request, task, model, facts):
    examples = image_examples if task == "image-classification" else None
    if examples is None:
        shutil.rmtree(image_examples)
        examples = request.getfixturevalue("text_examples")
    folders = {role: saved(tmp_path / role, model, facts, seed) for seed, role in enumerate(("teacher", "student"))}
    losses = {}
    for precision in ("fp32", "bf16"):
        evaluate = {"batch_size": 7, "latency": {"repeats": 3}, "precision": precision}
        measures, arrays = run(tmp_path, folders, examples, recipe_for(task, evaluate=evaluate))
        shutil.rmtree(tmp_path / "measures")
        assert measures["hardware"]["precision"] == precision
        losses[precision] = arrays["student.nll"]
    exact, rounded = losses["fp32"], losses["bf16"]
    assert not np.array_equal(exact, rounded)
    tokens = arrays["weights.tokens"]
    assert np.all(np.abs(rounded - exact) <= 2**-6 * (np.abs(exact) + tokens))


def test_answers_are_collected_for_a_task_with_a_metric_of_them(tmp_path, image_examples, monkeypatch):
    monkeypatch.setattr(load("image-classification"), "METRICS", ("accuracy", "macro_f1", "matthews"))
    folders = {role: saved(tmp_path / role, LINEAR, IMAGES, seed) for seed, role in enumerate(("teacher", "student"))}
    measures, arrays = run(tmp_path, folders, image_examples, recipe_for("image-classification"))
    labels = np.load(image_examples / "test.labels.npy")
    logits = loaded(folders["student"])(torch.from_numpy(np.load(image_examples / "test.images.npy"))).logits
    assert arrays["student.answer"].tolist() == logits.argmax(dim=1).tolist()
    assert arrays["weights.target"].tolist() == labels.tolist()
    assert len(set(arrays["trivial.answer"])) == 1
    student = measures["models"]["student"]
    assert student["metrics"]["macro_f1"] == pytest.approx(f1_score(labels, arrays["student.answer"], average="macro"))
    low, high = student["intervals"]["matthews"]
    assert low < student["metrics"]["matthews"] < high
    assert measures["slices"][0]["student"] is not None
