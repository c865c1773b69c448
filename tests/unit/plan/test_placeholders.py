"""Models that are not there yet: those that have files are planned as what their files say."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.plan.test_automatic import recipe
from understudy.data import tokenizer
from understudy.errors import InputError
from understudy.plan.estimate import Estimate
from understudy.plan.hardware import table
from understudy.plan.job import Job, jobs
from understudy.plan.placeholders import tokens_of
from understudy.plan.ranking import estimated
from understudy.plan.run_requirements import run_requirements


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's teacher in the hub's format: its configuration, and files of weights that nobody opens."""
    from transformers import AutoConfig

    folder = tmp_path_factory.mktemp("published")
    teacher, _ = jobs(recipe())
    assert teacher.planned.model["kind"] == "transformers"
    AutoConfig.for_model(**teacher.planned.model["config"]).save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def estimate_of(job: Job) -> Estimate:
    assert job.degrees
    return estimated(job.planned, job.degrees, job.placement(table()["H100"]))


def test_a_pretrained_teacher_has_the_estimate_of_its_architecture(published: Path) -> None:
    trained = list(jobs(recipe()))
    as_it_is = list(jobs(recipe("teacher.train=null", f"teacher.model={{pretrained: {published}}}")))
    assert [job.name for job in as_it_is] == ["distill"]
    assert estimate_of(as_it_is[0]) == estimate_of(trained[1])
    pretrained = recipe(f"teacher.model={{pretrained: {published}}}")
    further = list(jobs(pretrained))
    assert [estimate_of(job) for job in further] == [estimate_of(job) for job in trained]
    assert run_requirements(pretrained) == run_requirements(recipe())


def test_adapters_beside_a_pretrained_student_take_less(published: Path) -> None:
    pretrained = f"student.model={{pretrained: {published}}}"
    adapters = "student.train.lora={rank: 2, modules: [q_proj]}"
    _, full = jobs(recipe(pretrained))
    _, small = jobs(recipe(pretrained, adapters))
    assert estimate_of(small).traced.state < estimate_of(full).traced.state / 2


def smaller_vocabulary(config: dict[str, object]) -> None:
    config["vocab_size"] = 300


def quantised(config: dict[str, object]) -> None:
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (smaller_vocabulary, "teacher.model: has 300 tokens, the data has"),
        (quantised, "is quantised; take the model that it was made from"),
    ],
)
def test_what_its_configuration_does_not_allow_is_told(
    published: Path, tmp_path: Path, change: Callable[[dict[str, object]], None], message: str
) -> None:
    config = json.loads((published / "config.json").read_text())
    change(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=message):
        next(jobs(recipe(f"teacher.model={{pretrained: {tmp_path}}}")))


def test_a_pretrained_tokenizer_s_files_tell_its_size(tmp_path: Path) -> None:
    trained = tokenizer.train(iter(["a few words, and a few more words"] * 3), 270)
    (tmp_path / "tokenizer.json").write_text(trained.to_str())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": tokenizer.END_OF_TEXT}))
    with_tokenizer = recipe(f"data.text.tokenizer={{pretrained: {tmp_path}}}")
    assert tokens_of(with_tokenizer) == trained.get_vocab_size()
    teacher, _ = jobs(with_tokenizer)
    assert teacher.planned.model["task"] == "causal-lm"
    assert teacher.planned.model["vocab_size"] == trained.get_vocab_size()
