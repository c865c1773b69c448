"""The reader on the documentation's page, which knows the format and nothing of the package."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.teachers.cache import folders
from tests.unit.teachers.cache.distributions import skewed
from understudy.teachers.cache.parts import begin, finish, write_part
from understudy.teachers.cache.reader import CachedLogits
from understudy.teachers.cache.sparse import Sparse, sampled, top_k
from understudy.teachers.cache.tables import Tables

PAGE = Path("docs/how-it-works/logits.md")


@pytest.fixture(scope="module")
def page_reader() -> dict[str, Any]:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code
    names: dict[str, Any] = {}
    exec(code[1], names)
    return names


def assert_same(page_reader: dict[str, Any], folder: Path) -> None:
    cached = CachedLogits(folder)
    for example in range(len(cached)):
        expected = cached.read(np.array([example]))
        positions = page_reader["read_example"](folder, example)
        assert len(positions) == len(expected.ids)
        for at, (ids, log_probs, tail) in enumerate(positions):
            used = int((expected.ids[at] >= 0).sum())
            assert ids == expected.ids[at, :used].tolist()
            assert np.array_equal(np.float32(log_probs), expected.log_probs[at, :used].numpy())
            assert np.float32(tail) == expected.tail[at].item()


def written(folder: Path, sparse: Sparse, tables: Tables) -> Path:
    begin(folder, tables, 4, 3)
    quarter = len(sparse.ids) // 4
    for number, piece in enumerate((slice(0, 3 * quarter), slice(3 * quarter, 4 * quarter))):
        part = Sparse(sparse.ids[piece], sparse.log_probs[piece], sparse.tail[piece], sparse.vocabulary)
        write_part(folder, number, np.full(len(part.ids) // quarter, quarter), part, tables)
    finish(folder, {})
    return folder


def test_the_reader_of_the_page_reads_nuclei_in_parts(page_reader: dict[str, Any], tmp_path: Path) -> None:
    folders.write_all(tmp_path)
    assert_same(page_reader, tmp_path)


@pytest.mark.parametrize("spread", [0.1, 2.0, 60.0])
def test_the_reader_of_the_page_reads_large_and_small_values(
    page_reader: dict[str, Any], tmp_path: Path, spread: float
) -> None:
    """Many topics, and levels and ranks with raw bits; tables of another sample, so that streams are long."""
    log_probs = skewed(200, 5000, spread=spread)
    tables = Tables.fit([top_k(skewed(200, 5000, seed=1), 60)])
    assert len(tables.heads) > 1
    assert_same(page_reader, written(tmp_path, top_k(log_probs, 60), tables))


@pytest.mark.parametrize("draws", [1, 12, 400])
def test_the_reader_of_the_page_reads_draws(page_reader: dict[str, Any], tmp_path: Path, draws: int) -> None:
    sparse = sampled(skewed(200, 3000), draws, np.arange(200))
    assert_same(page_reader, written(tmp_path, sparse, Tables.fit([sparse], draws=draws)))


def test_the_reader_of_the_page_is_short(page_reader: dict[str, Any]) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code
    assert len([line for line in code[1].splitlines() if line]) <= 60
