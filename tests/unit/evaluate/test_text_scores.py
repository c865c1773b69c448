"""Scores of answers against the programs that the field computes them with."""

import runpy
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from understudy.evaluate.text_scores import chrf, exact_match, f1, rouge_l

SPEC = find_spec("lm_eval")
assert SPEC is not None
assert SPEC.origin is not None
SQUAD = runpy.run_path(str(Path(SPEC.origin).parent / "tasks" / "qasper" / "metrics.py"))
"""SQuAD's own functions, as lm-eval has them; importing lm_eval would take seconds."""
WORDS = st.lists(st.sampled_from(["the", "a", "Len", "len", "returns", "it,", "3.5", "-", "an", "x_y"]), max_size=12)
TEXTS = WORDS.map(" ".join)
SCORES = [exact_match, f1, rouge_l, chrf]


@given(TEXTS, TEXTS)
def test_exact_match_and_f1_are_squads(answer: str, reference: str) -> None:
    words = [SQUAD["normalize_answer"](text) for text in (answer, reference)]
    assert exact_match(answer, reference) == (words[0] == words[1])
    expected = SQUAD["f1_abstractive"]([answer], [reference]) if any(words) else 1  # as of version 2.0
    assert f1(answer, reference) == pytest.approx(expected, abs=1e-12)


@given(TEXTS, TEXTS)
def test_rouge_l_is_that_of_rouge_score(answer: str, reference: str) -> None:
    plain = [text.replace("_", " ") for text in (answer, reference)]  # rouge_score splits at underscores
    scorer = RougeScorer(["rougeL"])
    expected = scorer.score(plain[1], plain[0])["rougeL"].fmeasure
    if any(any(letter.isalnum() for letter in text) for text in plain):
        assert rouge_l(*plain) == pytest.approx(expected, abs=1e-12)
    else:
        assert rouge_l(*plain) == 1.0, "two texts without words are equal"


@given(TEXTS, TEXTS)
def test_chrf_is_f2_of_the_mean_precision_and_recall_of_character_n_grams(answer: str, reference: str) -> None:
    pairs = []
    letters = [text.replace(" ", "") for text in (answer, reference)]
    for size in range(1, 7):
        counts = [Counter(text[at : at + size] for at in range(len(text) - size + 1)) for text in letters]
        if counts[0] and counts[1]:
            common = (counts[0] & counts[1]).total()
            pairs.append((common / counts[0].total(), common / counts[1].total()))
    precision, recall = (sum(part) / max(len(pairs), 1) for part in zip(*pairs, strict=True)) if pairs else (0, 0)
    expected = 5 * precision * recall / (4 * precision + recall) if precision and recall else 0.0
    assert chrf(answer, reference) == pytest.approx(expected if any(letters) else 1, abs=1e-12)


@given(st.sampled_from(SCORES), st.text(max_size=20), st.text(max_size=20))
def test_scores_are_between_0_and_1_and_an_answer_matches_itself(score, answer: str, reference: str) -> None:
    assert 0 <= score(answer, reference) <= 1
    assert score(answer, answer) == pytest.approx(1)


def test_words_of_other_scripts_count() -> None:
    assert rouge_l("длина списка", "длина строки") == 0.5
    assert f1("длина списка", "длина строки") == 0.5
