"""lora.json: read by peft, and refused from ranks if its values are not the recipe's."""

import json
from pathlib import Path
from typing import Any

import pytest

from understudy.models.adapter_config import adapter_config, adapters_match
from understudy.recipe import Lora, PretrainedModel

FACTS: Any = {"task": "causal-lm", "vocab_size": 64, "eos_id": 0, "sequence_length": 16}
HUB = PretrainedModel(pretrained="owner/model", revision="f" * 40)
LORA = Lora(modules=("q_proj",), rank=4, alpha=6.0, dropout=0.1)


def written(folder: Path, began: PretrainedModel = HUB, **changes: Any) -> Path:
    config = adapter_config(LORA, began, FACTS, ["model.layers.0.self_attn.q_proj"], transposed=False)
    (folder / "lora.json").write_text(json.dumps({**config, **changes}))
    (folder / "lora.adapter").touch()
    return folder


def test_peft_reads_all_of_it(tmp_path: Path) -> None:
    import peft

    written_config = json.loads((written(tmp_path) / "lora.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(written_config))
    config = peft.PeftConfig.from_pretrained(str(tmp_path))
    assert isinstance(config, peft.LoraConfig)
    read_config = {key: value for key, value in config.to_dict().items() if key in written_config}
    assert {**read_config, "target_modules": list(read_config["target_modules"])} == written_config
    assert config.base_model_name_or_path == "owner/model"


def test_a_folder_is_no_name_for_others(tmp_path: Path) -> None:
    local = PretrainedModel(pretrained="/somewhere/model")
    assert json.loads((written(tmp_path, local) / "lora.json").read_text())["base_model_name_or_path"] is None
    assert adapters_match(tmp_path, local, LORA, FACTS)


@pytest.mark.parametrize(
    "changes",
    [
        {"base_model_name_or_path": "somebody/else"},
        {"revision": "main"},
        {"megatron_config": {}, "megatron_core": "planted"},
        {"auto_mapping": {"parent_library": "planted", "base_model_class": "Model"}},
        {"peft_type": "ADALORA"},
        {"lora_alpha": 1e9},
        {"r": 5},
        {"target_modules": ".*"},
        {"target_modules": ["(a+)+$"]},
        {"fan_in_fan_out": "yes"},
        {"task_type": ["x"]},
    ],
)
def test_what_is_not_of_the_recipe_does_not_fit(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert adapters_match(written(tmp_path), HUB, LORA, FACTS)
    assert not adapters_match(written(tmp_path, **changes), HUB, LORA, FACTS)


def test_adapters_are_there_where_the_recipe_has_them_kept_and_nowhere_else(tmp_path: Path) -> None:
    with_more = LORA.model_copy(update={"whole": ("norm",)})
    assert not adapters_match(tmp_path, HUB, LORA, FACTS)
    assert adapters_match(tmp_path, HUB, None, FACTS)
    assert adapters_match(tmp_path, HUB, with_more, FACTS)
    written(tmp_path)
    assert not adapters_match(tmp_path, HUB, None, FACTS)
    assert not adapters_match(tmp_path, HUB, with_more, FACTS)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "{}"])
def test_a_file_that_is_none_does_not_fit(tmp_path: Path, text: str) -> None:
    (written(tmp_path) / "lora.json").write_text(text)
    assert not adapters_match(tmp_path, HUB, LORA, FACTS)
