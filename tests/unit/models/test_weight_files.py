import json
from pathlib import Path

import pytest

from understudy.errors import UnderstudyError
from understudy.models.weight_files import INDEX, is_weight_file, weight_bytes, weight_files

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def folder(at: Path, names: dict[str, int], index: object = None) -> Path:
    for name, size in names.items():
        (at / name).write_bytes(bytes(size))
    if index is not None:
        (at / INDEX).write_text(json.dumps(index))
    return at


def test_weights_are_one_file_or_those_that_the_index_names(tmp_path: Path) -> None:
    single_file, sharded = tmp_path / "one", tmp_path / "several"
    single_file.mkdir()
    sharded.mkdir()
    folder(single_file, {"model.safetensors": 5, "config.json": 3})
    folder(sharded, {TWO: 7, ONE: 4, "config.json": 3}, {"weight_map": {"a": TWO, "b": ONE, "c": ONE}})
    assert weight_files(single_file) == (single_file / "model.safetensors",)
    assert weight_files(sharded) == (sharded / ONE, sharded / TWO)
    assert (weight_bytes(single_file), weight_bytes(sharded)) == (5, 11)


@pytest.mark.parametrize(
    ("names", "index"),
    [
        ({}, None),
        ({ONE: 1}, None),
        ({ONE: 1, "model.safetensors": 1}, {"weight_map": {"a": ONE}}),
        ({ONE: 1, TWO: 1}, {"weight_map": {"a": ONE}}),
        ({ONE: 1}, {"weight_map": {"a": ONE, "b": TWO}}),
        ({ONE: 1}, {"weight_map": {"a": ONE, "b": "../other/" + TWO}}),
        ({ONE: 1}, {"weight_map": [ONE]}),
        ({ONE: 1}, [ONE]),
        ({"model.safetensors": 1}, {"weight_map": {"a": "model.safetensors"}}),
    ],
)
def test_files_that_no_index_names_are_refused(tmp_path: Path, names: dict[str, int], index: object) -> None:
    with pytest.raises(UnderstudyError, match=r"its weights are neither in model\.safetensors nor in the files that"):
        weight_files(folder(tmp_path, names, index))


def test_what_holds_weights_is_told_by_its_name() -> None:
    assert all(map(is_weight_file, ["model.safetensors", INDEX, ONE]))
    assert not any(map(is_weight_file, ["model.bin", "xmodel-00001-of-00002.safetensors", ONE + ".py", "../" + ONE]))
