"""The answers of a champion that understudy did not make, in the form of measures."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from understudy.steps.evaluate import _add_foreign
from understudy.steps.foreign import _of_probabilities


def test_probabilities_become_what_every_model_has() -> None:
    probabilities, targets = np.array([[0.9, 0.1], [0.4, 0.6], [1.0, 0.0]]), np.array([0, 0, 1])
    results = _of_probabilities(probabilities, targets)
    assert results["champion.nll"].tolist() == pytest.approx([-math.log(0.9), -math.log(0.4), math.inf])
    assert results["champion.correct"].tolist() == [1.0, 0.0, 0.0]
    assert results["champion.confidence_sum"].sum() == pytest.approx(2.5)


def test_its_answers_stand_beside_those_of_the_models_that_were_measured(tmp_path: Path) -> None:
    measures, theirs = tmp_path / "measures", tmp_path / "theirs"
    for folder in (measures, theirs):
        folder.mkdir()
    np.savez(measures / "per_example.npz", **{"weights.tokens": np.ones(3), "student.correct": np.zeros(3)})
    np.savez(theirs / "results.npz", **{"champion.correct": np.ones(3)})
    (theirs / "champion.json").write_text('{"name": "digits", "version": "1"}')
    _add_foreign(theirs, measures)
    with np.load(measures / "per_example.npz") as both:
        assert {name: both[name].tolist() for name in both} == {
            "weights.tokens": [1.0] * 3,
            "student.correct": [0.0] * 3,
            "champion.correct": [1.0] * 3,
        }
    assert json.loads((measures / "champion.json").read_text())["version"] == "1"
