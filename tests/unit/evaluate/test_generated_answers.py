"""Answers as texts, and their scores, of conversations that the test writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from understudy.data.ingest import ingest
from understudy.data.prepare import prepare
from understudy.errors import UnderstudyError
from understudy.evaluate.contents import COMPLETIONS
from understudy.evaluate.generated_answers import Answerable
from understudy.evaluate.text_scores import chrf, f1
from understudy.evaluate.worst_answers import worst_answers
from understudy.models.facts import read_facts
from understudy.recipe import Generation
from understudy.recipe.data import Data
from understudy.steps.measures import _check_scores

METRICS = ("nll", "exact_match", "f1", "rouge_l", "chrf", "agreement")
EVERYTHING = Generation(examples=1000, max_new_tokens=20)


@pytest.fixture(scope="module", params=["assistant", "all"])
def examples(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Conversations whose answers are their number in words, and `none` every third time; records are beside them."""
    folder = tmp_path_factory.mktemp("answers")
    with (folder / "all.jsonl").open("w") as file:
        for number in range(60):
            answer = "None." if number % 3 == 0 else f"The number {number}"
            turns = [("user", f"first {number}"), ("assistant", "yes"), ("user", "and?"), ("assistant", answer)]
            file.write(json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}) + "\n")
    data = Data.model_validate(
        {
            "source": {"type": "jsonl", "path": str(folder / "all.jsonl")},
            "text": {"sequence_length": 64, "tokenizer": {"vocab_size": 300}},
            "chat": {"loss_on": request.param},
            "validation": 0.1,
            "test": 0.5,
        }
    )
    for name in ("records", "examples"):
        (folder / name).mkdir()
    ingest(data, "chat", folder / "records", lambda done, total: None)
    prepare(data, "chat", folder / "records", folder / "examples", lambda done, total: None)
    return folder / "examples"


def tokens_of(examples: Path, texts: list[str | None]) -> np.ndarray:
    """Tokens of a model that gives these answers; None for one whose logits were NaN."""
    tokenizer, end = Tokenizer.from_file(str(examples / "tokenizer.json")), read_facts(examples)["eos_id"]
    rows = [[*tokenizer.encode(text).ids, end] if text is not None else [5, np.nan] for text in texts]
    width = max(map(len, rows))
    padding = [np.nan if text is None else end for text in texts]
    return np.array([row + [end] * (width - len(row)) for row, end in zip(rows, padding, strict=True)])


def results(examples: Path) -> tuple[Answerable, dict[str, Any]]:
    """A teacher that is always right, and a student that says None."""
    answerable = Answerable(examples, EVERYTHING)
    student: list[str | None] = ["none"] * len(answerable.references)
    teacher: list[str | None] = list(answerable.references)
    answers = {"teacher": teacher, "student": student}
    return answerable, {f"{role}.{COMPLETIONS}": tokens_of(examples, texts) for role, texts in answers.items()}


def test_references_are_the_last_answers_of_the_data(examples: Path) -> None:
    answerable = Answerable(examples, EVERYTHING)
    assert len(answerable.references) == len(answerable.prompts.examples) > 20
    for row, reference in enumerate(answerable.references):
        question = answerable.question(row)
        number = int(question.split("first ")[1].split("<")[0])
        assert reference == ("None." if number % 3 == 0 else f"The number {number}")
        assert question.endswith("<|im_start|>assistant\n")


def test_the_trivial_answer_is_the_most_frequent_one_of_the_training_split(examples: Path) -> None:
    assert Answerable(examples, EVERYTHING).trivial == "None."


def test_scores_compare_each_answer_with_its_reference(examples: Path) -> None:
    answerable, arrays = results(examples)
    scores = answerable.scores(arrays, METRICS)
    assert set(scores) == {
        f"{role}.{name}" for role in ("teacher", "student", "trivial") for name in METRICS[1:] if name != "agreement"
    }
    references = answerable.references
    assert scores["student.exact_match"].tolist() == [float(reference == "None.") for reference in references]
    assert scores["student.chrf"].tolist() == [chrf("none", reference) for reference in references]
    assert scores["trivial.f1"].tolist() == [f1("None.", reference) for reference in references]
    assert set(scores["teacher.rouge_l"]) == {1.0}


def test_agreement_compares_each_answer_with_the_teachers(examples: Path) -> None:
    answerable, arrays = results(examples)
    agreement = answerable.agreement(arrays, "student")
    assert set(agreement["student.agreement"]) == {1.0}
    assert agreement["teacher.agreement"].tolist() == [f1(answer, "none") for answer in answerable.references]


def test_an_answer_that_was_not_measured_has_no_score(examples: Path) -> None:
    answerable, arrays = results(examples)
    texts: list[str | None] = list(answerable.references)
    texts[2] = None
    arrays[f"student.{COMPLETIONS}"] = tokens_of(examples, texts)
    scores = answerable.scores(arrays, ["f1"])["student.f1"]
    assert np.flatnonzero(np.isnan(scores)).tolist() == [2]


def test_the_worst_answers_are_farthest_behind_the_teachers(examples: Path) -> None:
    answerable, arrays = results(examples)
    arrays |= answerable.scores(arrays, METRICS)
    shown = worst_answers(examples, examples.parent / "records", arrays, EVERYTHING)
    assert 1 < len(shown) <= 6
    gaps = dict(zip(answerable.prompts.examples, arrays["teacher.chrf"] - arrays["student.chrf"], strict=True))
    assert [gaps[answer.number] for answer in shown] == sorted(gaps.values(), reverse=True)[: len(shown)]
    assert {answer.student for answer in shown} == {"none"}
    assert all(answer.teacher == answer.reference and answer.record for answer in shown)


def test_scores_that_are_not_those_of_the_tokens_are_refused(examples: Path, tmp_path: Path, chat: Any) -> None:
    recipe = chat.model_copy(update={"evaluate": chat.evaluate.model_copy(update={"generation": EVERYTHING})})
    answerable, arrays = results(examples)
    arrays |= answerable.scores(arrays, METRICS) | answerable.agreement(arrays, "teacher")
    names = [name for name in arrays if not name.endswith(COMPLETIONS)]
    for tampered in (None, "student.f1", "trivial.chrf", "student.agreement"):
        changed = {name: values + 0.1 if name == tampered else values for name, values in arrays.items()}
        np.savez(tmp_path / "per_example.npz", allow_pickle=False, **changed)
        if tampered is None:
            _check_scores(tmp_path / "per_example.npz", names, recipe, examples, "teacher")
        else:
            with pytest.raises(UnderstudyError, match="has other scores of generated answers than their tokens"):
                _check_scores(tmp_path / "per_example.npz", names, recipe, examples, "teacher")


@pytest.fixture
def chat() -> Any:
    from tests import ROOT
    from understudy.recipe.file import load

    return load(ROOT / "recipes" / "chat.yaml")
