import json

import numpy as np
import pytest

from understudy.evaluate import trivial
from understudy.evaluate.metrics import value


@pytest.fixture
def images(tmp_path):
    (tmp_path / "examples.json").write_text(json.dumps({"task": "image-classification", "labels": ["a", "b", "c"]}))
    np.save(tmp_path / "train.labels.npy", np.array([0, 1, 1, 1, 0]))
    np.save(tmp_path / "test.labels.npy", np.array([1, 0, 2, 1]))
    return tmp_path


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "examples.json").write_text(json.dumps({"task": "causal-lm", "vocab_size": 4}))
    np.save(tmp_path / "train.tokens.npy", np.array([1, 1, 2, 0], dtype=np.uint16))
    np.save(tmp_path / "test.tokens.npy", np.array([1, 3, 0, 0, 1, 1, 0], dtype=np.uint16))
    np.save(tmp_path / "test.offsets.npy", np.array([0, 3, 4, 7]))
    np.save(tmp_path / "test.bytes.npy", np.array([9, 1, 8]))
    return tmp_path


def test_images_get_the_shares_of_the_training_labels(images):
    results = trivial.trivial_results(images)
    shares = np.array([3, 4, 1]) / 8
    assert results["trivial.nll"] == pytest.approx(-np.log(shares[[1, 0, 2, 1]]))
    assert results["trivial.correct"].tolist() == [1, 0, 0, 1]
    assert results["trivial.confidence_sum"].sum(axis=1) == pytest.approx(0.5)


def test_documents_get_the_shares_of_the_training_tokens(texts):
    results = trivial.trivial_results(texts)
    nll = -np.log(np.array([2, 3, 2, 1]) / 8)
    assert results["trivial.nll"] == pytest.approx([nll[1] + nll[3] + nll[0], nll[0], 2 * nll[1] + nll[0]])
    assert results["trivial.correct"].tolist() == [1, 0, 2]


def test_its_results_are_those_of_a_model(texts):
    arrays = {"weights.tokens": np.array([3, 1, 3]), "weights.bytes": np.array([8, 2, 9])}
    arrays |= trivial.trivial_results(texts)
    assert value("accuracy", arrays, "trivial") == pytest.approx(3 / 7)
    assert value("bits_per_byte", arrays, "trivial") is not None
    assert value("calibration_error", arrays, "trivial") == pytest.approx(3 / 7 - 3 / 8)


def test_results_do_not_depend_on_the_size_of_pieces(texts, monkeypatch):
    at_once = trivial.trivial_results(texts)
    monkeypatch.setattr(trivial, "CHUNK", 2)
    parts = trivial.trivial_results(texts)
    assert all(np.allclose(at_once[name], parts[name]) for name in at_once)
