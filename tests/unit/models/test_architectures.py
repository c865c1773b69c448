import subprocess
import sys
from typing import Any

import pytest

from understudy.models import architectures
from understudy.models.architectures import (
    aliases,
    duplicate_settings,
    model_types,
    optional_settings,
    settings,
    suggestion,
    types_for,
)
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.recipe import ArchitectureModel


@pytest.mark.parametrize("model_type", ["vit", "resnet", "convnext", "gpt2", "llama", "qwen2", "gpt_neox", "dinov2"])
def test_all_that_transformers_takes_is_known(model_type: str) -> None:
    """With vit, gpt2 and the rest written out, inherited, or made in a __post_init__."""
    from transformers import AutoConfig

    assert model_type in model_types()
    assert (names := settings(model_type)) is not None
    assert set(AutoConfig.for_model(model_type).to_dict()) <= names
    assert not {"hiden_size", "pacth_size", "n_layers_"} & names


def test_what_a_network_asks_for_is_known_though_its_configuration_does_not_list_it() -> None:
    """Published Qwen3 mixtures of experts have it in their files, with another value than transformers would take."""
    from transformers import AutoConfig

    assert "head_dim" not in AutoConfig.for_model("qwen3_moe").to_dict()
    assert "head_dim" in optional_settings("qwen3_moe") & (settings("qwen3_moe") or frozenset())
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 8,
        "moe_intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "max_position_embeddings": 16,
        "head_dim": 16,
    }
    facts: Any = {"task": "causal-lm", "vocab_size": 64, "eos_id": 0, "sequence_length": 16}
    description = describe(ArchitectureModel(type="qwen3_moe", config=sizes), facts, "student.model")
    weights = dict(build_model(description).named_parameters())
    assert weights["net.model.layers.0.self_attn.q_proj.weight"].shape == (2 * 16, 16)


def test_the_types_of_a_task_are_those_of_transformers() -> None:
    from transformers.models.auto import modeling_auto

    assert types_for("causal-lm") == set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert types_for("image-classification") == set(modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)


def test_nothing_is_refused_where_transformers_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "find_spec", lambda _: None)
    for cached in (architectures._package, architectures._table):
        cached.cache_clear()
    assert (model_types(), types_for("causal-lm"), settings("vit")) == (frozenset(), frozenset(), None)
    for cached in (architectures._package, architectures._table):
        cached.cache_clear()


def test_nothing_heavy_is_imported_for_it() -> None:
    look = "import sys; from understudy.models import architectures as a; assert a.settings('vit');"
    look += "print({'torch', 'transformers'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("word", "names", "expected"),
    [
        ("num_layers", {"num_hidden_layers", "num_mtp_layers"}, "; did you mean num_hidden_layers?"),
        ("num_layers", {"num_mtp_layers"}, "; did you mean num_mtp_layers?"),
        ("n_heads", {"n_head", "num_attention_heads"}, "; did you mean n_head?"),
        ("hiden_size", {"hidden_size", "vocab_size"}, "; did you mean hidden_size?"),
        ("x", {"hidden_size"}, ""),
    ],
)
def test_the_name_that_was_meant_is_the_usual_one_or_the_closest(word: str, names: set[str], expected: str) -> None:
    assert suggestion(word, names) == expected


@pytest.mark.parametrize("model_type", ["gpt2", "qwen2", "xlm", "dinov2", "bloom", "ctrl"])
def test_other_names_of_settings_are_those_of_transformers(model_type: str) -> None:
    from transformers import AutoConfig

    assert aliases(model_type) == AutoConfig.for_model(model_type).attribute_map


def test_a_setting_that_is_given_under_two_names_is_found() -> None:
    names = aliases("gpt2")
    assert not list(duplicate_settings(names, ["n_head", "n_layer"]))
    problem = "is another name of n_head, which has a value already; leave it out"
    assert list(duplicate_settings(names, ["n_head", "num_attention_heads"])) == [("num_attention_heads", problem)]
    assert list(duplicate_settings({"a": "c", "b": "c"}, ["a", "b"])) == [("b", problem.replace("n_head", "a"))]


def test_no_name_of_the_configuration_class_itself_is_meant() -> None:
    names = settings("vit")
    assert names is not None
    assert suggestion("n_layers", names) == "; did you mean num_hidden_layers?"
