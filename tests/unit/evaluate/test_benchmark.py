"""Scores of saved models on tasks of lm-eval. With documents of one choice each, the numbers are known beforehand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.evaluate.small import LLAMA, saved
from understudy.data import tokenizer, tokenizer_files
from understudy.errors import InputError
from understudy.evaluate import benchmark as benchmark_module
from understudy.evaluate.benchmark import benchmark
from understudy.evaluate.benchmark_scores import Benchmarks
from understudy.models.facts import read_description
from understudy.models.files import load_model
from understudy.recipe import Recipe

WORDS = ["grass is green.", "snow is white.", "coal is black."]
COLOURS = ["green", "white", "black"]
CHOICE: dict[str, Any] = {
    "task": "choice",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": ["choice/0.jsonl"]}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{text}} is",
    "doc_to_choice": COLOURS,
    "doc_to_target": "{{label}}",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
ROLLING = {
    **{key: CHOICE[key] for key in ("dataset_path", "dataset_kwargs", "test_split")},
    "task": "rolling",
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{text}}",
}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    trained = tokenizer.train(iter(WORDS), 270)
    (folder / "tokenizer.json").write_text(trained.to_str())
    tokenizer_files.write(folder, tokenizer_files.of_trained())
    facts = {"task": "causal-lm", "vocab_size": trained.get_vocab_size(), "eos_id": 0, "sequence_length": 24}
    (folder / "examples.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> dict[str, Path]:
    facts = json.loads((examples / "examples.json").read_text())
    folder = tmp_path_factory.mktemp("models")
    paths = {role: saved(folder / role, LLAMA, facts, seed) for seed, role in enumerate(("teacher", "student"))}
    for path in paths.values():
        tokenizer_files.copy(examples, path)
    return paths


def score(folder: Path, models: dict[str, Path], examples: Path, *tasks: dict[str, Any], **settings: Any) -> Benchmarks:
    section = {"tasks": [task["task"] for task in tasks], "include": "/", **settings}
    values = {
        "name": "here",
        "task": "causal-lm",
        "data": {"source": {"type": "python-docs"}, "text": {"sequence_length": 24}},
        "teacher": {"model": LLAMA, "train": {"steps": 1}},
        "student": {"model": LLAMA, "train": {"steps": 1}},
        "evaluate": {"lm_eval": section},
    }
    (folder / "choice").mkdir(parents=True)
    rows = [{"text": text.split()[0], "label": at % 3} for at, text in enumerate(WORDS * 2)]
    (folder / "choice" / "0.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "tasks.json").write_text(json.dumps(tasks))
    (folder / "output").mkdir()
    digests = {role: role * 2 for role in models}
    output, done = folder / "output", list[int]()
    benchmark(models, digests, examples, Recipe.model_validate(values), folder, output, "cpu", done.append)
    assert sorted(set(done)) == list(range(len(models)))
    contents: Benchmarks = json.loads((output / "benchmarks.json").read_text())
    assert {role: model["digest"] for role, model in contents["models"].items()} == digests
    return contents


def test_scores_are_those_of_the_models_likelihoods(tmp_path: Path, models: dict[str, Path], examples: Path) -> None:
    contents = score(tmp_path, models, examples, CHOICE, ROLLING)
    tokens = tokenizer.load(examples / "tokenizer.json")
    for role, folder in models.items():
        model = load_model(folder, read_description(folder), torch.device("cpu")).double()

        def likelihood(ids: list[int], first: int, model: Any = model) -> float:
            with torch.inference_mode():
                logs = model(torch.tensor([ids[:-1]])).logits[0].log_softmax(dim=-1)
            return float(sum(logs[at - 1, ids[at]] for at in range(first, len(ids))))

        right, texts = 0, [text.split()[0] for text in WORDS]
        for at, text in enumerate(texts):
            before = len(tokens.encode(f"{text} is").ids)
            values = [likelihood(tokens.encode(f"{text} is {colour}").ids, before) for colour in COLOURS]
            right += values.index(max(values)) == at
        (choice,), rolling = (contents["models"][role]["tasks"][name] for name in ("choice", "rolling"))
        assert choice["value"] == pytest.approx(right / 3)
        share = right / 3
        assert choice["stderr"] == pytest.approx(math.sqrt(share * (1 - share) / 5))
        nats = sum(likelihood([0, *tokens.encode(text).ids], 1) for text in texts)
        bits = {entry["metric"]: entry["value"] for entry in rolling}["bits_per_byte"]
        assert bits == pytest.approx(-nats / math.log(2) / sum(map(len, texts)), rel=1e-5)
    assert contents["tasks"]["choice"] == {"examples": 6, "num_fewshot": 0, "higher_is_better": {"acc": True}}


def test_the_limit_and_the_shots_are_the_recipes(tmp_path: Path, models: dict[str, Path], examples: Path) -> None:
    contents = score(tmp_path, models, examples, CHOICE, limit=2, num_fewshot=1)
    assert (contents["tasks"]["choice"]["examples"], contents["tasks"]["choice"]["num_fewshot"]) == (2, 1)
    zero = score(tmp_path / "zero", models, examples, {**CHOICE, "num_fewshot": 0}, num_fewshot=1)
    assert zero["tasks"]["choice"]["num_fewshot"] == 0, "as lm-eval has it"


def test_a_model_whose_logits_are_no_numbers_has_no_scores(
    tmp_path: Path, models: dict[str, Path], examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(folders: dict[str, Path], *arguments: Any) -> dict[str, Any]:
        loaded = original(folders, *arguments)
        for parameter in loaded["student"].parameters() if "student" in loaded else ():
            parameter.data.fill_(torch.nan)
        return loaded

    original = benchmark_module.load_models
    monkeypatch.setattr(benchmark_module, "load_models", load)
    contents = score(tmp_path, models, examples, CHOICE)
    values = {role: model["tasks"]["choice"][0]["value"] for role, model in contents["models"].items()}
    assert values["student"] is None
    assert values["teacher"] is not None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metric_list": [{"metric": "accuracies"}]}, r"choice: lm-eval has no metric accuracies; it has .*acc, "),
        ({"doc_to_text": "{{text.nothing()}}"}, r"choice: lm-eval cannot ask it \(UndefinedError"),
        ({"doc_to_text": "{{"}, r"choice: lm-eval cannot ask it \(TemplateSyntaxError"),
        ({"doc_to_target": 7}, r"choice: lm-eval cannot ask it \(IndexError"),
        ({"unknown_key": 7}, r"choice: lm-eval cannot ask it \(TypeError: .*unknown_key"),
    ],
)
def test_a_task_that_does_not_fit_its_documents_is_named(
    tmp_path: Path, models: dict[str, Path], examples: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=rf"^evaluate\.lm_eval\.tasks: {reason}"):
        score(tmp_path, models, examples, {**CHOICE, **changes})
