"""The key of cached logits, and what the step takes over from the job that writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import ROOT
from understudy.errors import UnderstudyError
from understudy.graph import LOGITS, nodes
from understudy.recipe.file import load
from understudy.steps.graph import steps_of
from understudy.store import Store
from understudy.teachers.cache import layout, parts
from understudy.teachers.cache.sparse import top_k
from understudy.teachers.cache.tables import Tables
from understudy.teachers.cache.verification import verified

CACHE = "teacher.logits={type: top_k, k: 5}"
FACTS = {"teacher": "a" * 64, "examples": "b" * 64, "temperature": 4.0}


def section(store: Store, *overrides: str) -> Any:
    recipe = load(ROOT / "recipes" / "digits.yaml", overrides=[CACHE, *overrides])
    (node,) = (node for node in nodes(recipe) if node.kind is LOGITS)
    return steps_of(recipe)[node.name].section(recipe, store)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.mark.parametrize(
    "change",
    [
        "teacher.logits={type: top_k, k: 6}",
        "teacher.logits={type: sampled}",
        "student.distill=[{type: logits, temperature: 3}]",
        "evaluate.precision=bf16",
    ],
)
def test_what_decides_the_numbers_is_in_the_key(store: Store, change: str) -> None:
    assert section(store, change) != section(store)


@pytest.mark.parametrize(
    "change", ["seed=7", "student.train.epochs=3", "resources.evaluate={processes: 2}", "gate.margin=0.2"]
)
def test_neither_a_student_nor_a_seed_nor_ranks_are_in_the_key(store: Store, change: str) -> None:
    assert section(store, change) == section(store)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A complete folder of four examples in two parts."""
    generator, folder = np.random.default_rng(0), tmp_path / "cache"
    sparse = top_k(torch.from_numpy(generator.normal(0, 2, (6, 9))).log_softmax(-1), 4)
    tables = Tables.fit([sparse])
    parts.begin(folder, tables, 4, examples_per_part=2)
    for number, rows in enumerate((slice(0, 3), slice(3, 6))):
        part = sparse._replace(ids=sparse.ids[rows], log_probs=sparse.log_probs[rows], tail=sparse.tail[rows])
        parts.write_part(folder, number, np.array([1, 2]), part, tables)
    parts.finish(folder, FACTS)
    return folder


def test_a_complete_folder_of_the_right_facts_is_taken_over(written: Path) -> None:
    assert verified(written, FACTS).statistics["positions"] == 6
    assert all(layout.FILES.fullmatch(path.name) for path in written.iterdir())


def _other_teacher(folder: Path) -> None:
    value = json.loads((folder / "logits.json").read_text())
    value["facts"]["teacher"] = "c" * 64
    (folder / "logits.json").write_text(json.dumps(value))


def _incomplete(folder: Path) -> None:
    value = json.loads((folder / "logits.json").read_text())
    (folder / "logits.json").write_text(json.dumps({**value, "complete": False}))


def _cut(folder: Path) -> None:
    path = folder / "part-00001.bin"
    path.write_bytes(path.read_bytes()[:-1])


def _rubbish(folder: Path) -> None:
    path = folder / "part-00001.bin"
    path.write_bytes(path.read_bytes()[:8] + b"\xff" * (path.stat().st_size - 8))


def _statistic(folder: Path) -> None:
    value = json.loads((folder / "logits.json").read_text())
    value["statistics"]["\x1b[31mred"] = 1
    (folder / "logits.json").write_text(json.dumps(value))


def _fewer(folder: Path) -> None:
    value = json.loads((folder / "logits.json").read_text())
    (folder / "logits.json").write_text(json.dumps({**value, "examples": 2}))


def _headed(folder: Path, header: bytes) -> None:
    (folder / "part-00000.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_rubbish, "part 1: a wrong checksum"),
        (_statistic, "statistics: are not those of the parts"),
        (_fewer, "has a file 'part-00001.bin' beyond its 1 parts"),
        (lambda folder: (folder / "part-00009.npy").touch(), "has a file 'part-00009.npy' beyond its 2 parts"),
        (lambda folder: _headed(folder, b"{'descr': ("), "part-00000.npy: is damaged"),
        (lambda folder: _headed(folder, b"-" * 9000 + b"1"), "part-00000.npy: is damaged"),
        (lambda folder: (folder / "tables.json").write_text('{"order": NaN}'), "tables.json: is damaged"),
        (_other_teacher, "has 'teacher' 'cccc"),
        (_incomplete, "is not complete"),
        (_cut, "its index says"),
        (lambda folder: (folder / "part-00000.npy").unlink(), "is missing"),
        (lambda folder: (folder / "tables.json").write_text("{}"), "is damaged"),
        (lambda folder: (folder / "logits.json").write_text("[]"), "logits.json"),
    ],
)
def test_another_folder_is_refused(written: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(written)
    with pytest.raises(UnderstudyError, match=message):
        verified(written, FACTS)


@pytest.mark.parametrize("name", ["part-00000.bin.tmp", "model.py", "logits.json.link", "../x", "part-1.bin"])
def test_other_files_are_no_part_of_a_result(name: str) -> None:
    assert not layout.FILES.fullmatch(name)
