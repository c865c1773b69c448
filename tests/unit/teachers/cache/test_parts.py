"""Folders of cached logits, written in parts."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.unit.teachers.cache import folders
from tests.unit.teachers.cache.distributions import rows, skewed
from understudy.errors import UnderstudyError
from understudy.teachers.cache import parts
from understudy.teachers.cache.parts import begin, finish, missing, write_part
from understudy.teachers.cache.sparse import top_k
from understudy.teachers.cache.tables import Tables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    begin(tmp_path / "logits", folders.TABLES, folders.EXAMPLES, folders.EXAMPLES_PER_PART)
    return tmp_path / "logits"


def test_parts_are_missing_until_they_are_written_in_any_order(folder: Path) -> None:
    assert missing(folder) == [0, 1, 2, 3, 4]
    for number in (3, 0, 4):
        folders.write(folder, number)
    assert missing(folder) == [1, 2]
    with pytest.raises(UnderstudyError, match=r"part-00001\.npy: is missing; write part 1 again"):
        finish(folder, {})


def test_a_folder_that_is_begun_again_keeps_its_parts(folder: Path) -> None:
    folders.write(folder, 2)
    before = folders.contents(folder)
    begin(folder, folders.TABLES, folders.EXAMPLES, folders.EXAMPLES_PER_PART)
    assert folders.contents(folder) == before


def test_a_folder_of_other_examples_or_tables_is_refused(folder: Path) -> None:
    other = Tables.fit([top_k(skewed(9, 400), 12)])
    for tables, examples, per_part in ((other, 23, 5), (folders.TABLES, 24, 5), (folders.TABLES, 23, 6)):
        with pytest.raises(UnderstudyError, match="has logits of other examples or tables"):
            begin(folder, tables, examples, per_part)


def test_statistics_are_means_by_position(folder: Path) -> None:
    folders.write_all(folder)
    statistics = json.loads((folder / "logits.json").read_text())["statistics"]
    positions = int(folders.COUNTS.sum())
    assert statistics["positions"] == positions
    sizes = sum(path.stat().st_size - 8 for path in folder.glob("part-*.bin"))
    assert statistics["bytes"] == sizes
    assert statistics["mean_entries"] == pytest.approx((folders.SPARSE.ids >= 0).sum().item() / positions)
    assert statistics["mean_tail"] == pytest.approx(folders.SPARSE.tail.exp().mean().item(), rel=1e-5)
    assert statistics["mean_kl"] == pytest.approx(parts_kl(), rel=1e-5)


def parts_kl() -> float:
    return float(folders.kl(folders.LOG_PROBS, folders.SPARSE).mean())


def test_a_divergence_that_was_not_given_is_unknown(tmp_path: Path) -> None:
    sparse = top_k(skewed(6, 50), 4)
    begin(tmp_path, Tables.fit([sparse]), 2)
    write_part(tmp_path, 0, np.array([2, 4]), sparse, Tables.fit([sparse]))
    assert finish(tmp_path, {})["mean_kl"] is None


def test_no_examples_are_a_folder_without_parts(tmp_path: Path) -> None:
    begin(tmp_path, folders.TABLES, 0)
    assert missing(tmp_path) == []
    assert finish(tmp_path, {})["positions"] == 0


def test_a_part_of_the_wrong_length_is_missing(folder: Path) -> None:
    folders.write(folder, 0)
    with (folder / "part-00000.bin").open("ab") as stream:
        stream.write(b"x")
    assert missing(folder) == [0, 1, 2, 3, 4]


def test_a_write_that_fails_leaves_no_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".npy":
            raise UnderstudyError("the disk is full")
        path.write_bytes(content)

    monkeypatch.setattr(parts, "write_whole", full)
    with pytest.raises(UnderstudyError, match="disk is full"):
        folders.write(folder, 0)
    assert missing(folder) == [0, 1, 2, 3, 4]


def test_writing_that_was_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """A process is killed at several moments; what is then missing is written by another one."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    folders.write_all(whole)
    command = [sys.executable, "-m", "tests.unit.teachers.cache.folders", str(killed)]
    for delay in (0.0, 0.013, 0.05):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stdout.readline() == b"begun\n"
            time.sleep(delay)
            os.kill(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    (killed / ".part-00001.bin.0123abcd").write_bytes(b"what a kill left")
    shutil.copy(whole / "part-00003.bin", killed / "part-00003.bin")
    (killed / "part-00003.npy").unlink(missing_ok=True)
    assert 3 in missing(killed)
    folders.write_all(killed)
    assert folders.contents(killed) == folders.contents(whole)


def test_a_part_depends_on_its_content_alone(tmp_path: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    folders.write_all(left)
    begin(right, folders.TABLES, 3, 3)
    end = int(folders.FIRSTS[3])
    write_part(right, 0, folders.COUNTS[:3], rows(folders.SPARSE, slice(0, end)), folders.TABLES)
    blocks = (right / "part-00000.bin").read_bytes()
    assert (left / "part-00000.bin").read_bytes().startswith(blocks)
