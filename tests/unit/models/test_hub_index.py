import json
import re
from pathlib import Path
from typing import Any

import pytest

from understudy.models.hub_index import named_files

INDEX = "model.safetensors.index.json"


def index(folder: Path, content: Any, name: str = INDEX) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def shards_of(*names: Any) -> dict[str, Any]:
    return {"weight_map": {str(number): name for number, name in enumerate(names)}}


def test_files_beside_the_index_are_named_once_and_in_order(tmp_path: Path) -> None:
    assert named_files(index(tmp_path, shards_of("b.safetensors", "a.safetensors", "b.safetensors"))) == [
        "a.safetensors",
        "b.safetensors",
    ]
    assert named_files(index(tmp_path, shards_of("a.bin"), "pytorch_model.bin.index.json")) == ["a.bin"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            shards_of("../other/a.safetensors"),
            "names '../other/a.safetensors', which is no *.safetensors file beside it",
        ),
        (shards_of("/etc/a.safetensors"), "names '/etc/a.safetensors'"),
        (shards_of("inside/a.safetensors"), "names 'inside/a.safetensors'"),
        (shards_of("a.bin"), "names 'a.bin', which is no *.safetensors file beside it"),
        (shards_of(7), "has no weight_map from tensors to files"),
        (shards_of(["a.safetensors"]), "has no weight_map from tensors to files"),
        ({"weight_map": {}}, "has no weight_map from tensors to files"),
        ({"weight_map": ["a.safetensors"]}, "has no weight_map from tensors to files"),
        (["a.safetensors"], "has no weight_map from tensors to files"),
        ({}, "has no weight_map from tensors to files"),
        ("{", "is not JSON"),
    ],
)
def test_what_names_other_files_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(INDEX)} {re.escape(message)}"):
        named_files(index(tmp_path, content))
