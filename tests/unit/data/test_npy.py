import numpy as np
import pytest

from understudy.data.npy import NpyFile


@pytest.mark.parametrize("parts", [[], [0], [3], [1, 0, 70_000, 5]])
@pytest.mark.parametrize("row", [(), (2, 3)])
def test_rows_come_back_as_numpy_reads_them(tmp_path, parts, row):
    rows = [np.random.default_rng(n).integers(0, 60_000, (n, *row)) for n in parts]
    with NpyFile(tmp_path / "a.npy", np.uint16, row) as file:
        for part in rows:
            file.append(part)
    for mode in (None, "r"):
        loaded = np.load(tmp_path / "a.npy", mmap_mode=mode)
        assert loaded.dtype == np.uint16
        np.testing.assert_array_equal(loaded, np.concatenate([np.zeros((0, *row), int), *rows]))


def test_bytes_are_those_that_numpy_saves(tmp_path):
    values = np.arange(10, dtype=np.int64)
    with NpyFile(tmp_path / "ours.npy", np.int64) as file:
        file.append(values)
    np.save(tmp_path / "theirs.npy", values)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
