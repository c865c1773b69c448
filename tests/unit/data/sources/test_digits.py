import numpy as np

from tests.unit.data.sources.reading import records
from understudy.data.images import pixels
from understudy.data.sources import digits


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    expected = load_digits()
    digits = records(type="digits")
    images = np.stack([pixels(raw.content, 8, 1)[0] for raw in digits])
    np.testing.assert_array_equal(images, np.rint(expected.images * 255 / 16))
    assert [raw.label for raw in digits] == [str(label) for label in expected.target]


def test_the_digest_is_that_of_the_file_that_is_read(tmp_path, monkeypatch, fingerprints):
    section = digits.DigitsSource(type="digits")
    before = digits.digest(section, fingerprints)
    (tmp_path / "digits.csv.gz").write_bytes(b"others")
    monkeypatch.setattr(digits, "_file", lambda: tmp_path / "digits.csv.gz")
    assert digits.digest(section, fingerprints) != before
