"""Composite models: their text part is fetched, gives the same logits, and is built again from its description."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from understudy.data.loader import open_split
from understudy.errors import InputError
from understudy.models.architectures import composite_message, is_composite, types_for
from understudy.models.build import empty_model
from understudy.models.describe import describe
from understudy.models.facts import Description, read_description, read_facts
from understudy.models.files import load_model
from understudy.models.pretrained import expected_description, fetch
from understudy.models.text_config import text_config
from understudy.recipe import ArchitectureModel, PretrainedModel
from understudy.train.shapes import check_shapes

WORDS = 50
TEXT: dict[str, Any] = {
    "vocab_size": WORDS + 14,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
PICTURES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
KINDS: dict[str, dict[str, Any]] = {
    "gemma3": {"text_config": TEXT, "vision_config": PICTURES, "mm_tokens_per_image": 4},
    "llama4": {"text_config": {**TEXT, "intermediate_size_mlp": 24, "num_local_experts": 2}},
    "mllama": {"text_config": {**TEXT, "cross_attention_layers": [1]}},
    "qwen3_5": {"text_config": {**TEXT, "layer_types": ["linear_attention", "full_attention"]}},
    "fuyu": {"text_config": {**TEXT, "model_type": "persimmon"}},
}


def composite(kind: str) -> Any:
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **KINDS[kind])).eval()


def published(kind: str, folder: Path) -> Any:
    """As its maker publishes it: with the configuration of the whole."""
    net = composite(kind)
    net.save_pretrained(folder)
    AutoConfig.for_model(kind, **KINDS[kind]).save_pretrained(folder)
    return net


def shapes(description: Description) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in empty_model(description).state_dict().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_part_is_taken_and_says_what_the_whole_says(kind: str, tmp_path: Path, text_examples: Path) -> None:
    net = published(kind, tmp_path / "source")
    section, out = PretrainedModel(pretrained=str(tmp_path / "source")), tmp_path / "out"
    out.mkdir()
    fetch(section, text_examples, out, "teacher.model")
    description = read_description(out)
    before = expected_description(section, read_facts(text_examples), "teacher.model", "kept")
    assert shapes(before) == shapes(description)
    model = load_model(out, description, torch.device("cpu"))
    split = open_split(text_examples, "train")
    check_shapes(model, split, description, torch.device("cpu"), "teacher.model")
    tokens = torch.arange(16)[None]
    with torch.no_grad():
        expected = net(tokens).logits[..., :WORDS]
        both_logits = [
            model(tokens).logits,
            AutoModelForCausalLM.from_pretrained(out).eval()(tokens).logits[..., :WORDS],
        ]
    for logits in both_logits:
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    model.train()(tokens)  # none asks for pictures that are not there


@pytest.mark.parametrize("kind", ["gemma3", "mllama"])
def test_its_positions_and_its_vocabulary_are_the_texts(kind: str, tmp_path: Path, text_examples: Path) -> None:
    published(kind, tmp_path / "source")
    section = PretrainedModel(pretrained=str(tmp_path / "source"))
    facts: Any = read_facts(text_examples)
    with pytest.raises(InputError, match=r"sees 32 positions, data\.text.sequence_length is 64"):
        expected_description(section, {**facts, "sequence_length": 64}, "teacher.model", "kept")
    with pytest.raises(InputError, match="has 64 tokens, the data has 65"):
        expected_description(section, {**facts, "vocab_size": 65}, "teacher.model", "kept")


def test_every_causal_type_says_where_its_vocabulary_is() -> None:
    """By its class; its source, which `recipe check` reads, is not always understood, and never wrong."""
    logging.set_verbosity_error()
    for kind in sorted(types_for("causal-lm") - {"gemma4_assistant"}):  # which has no configuration by default
        config = AutoConfig.for_model(kind)
        assert hasattr(text_config(config), "vocab_size"), kind
        assert not is_composite(kind) or type(text_config(config)) is not type(config), kind
    assert all(map(is_composite, ("gemma3", "llama4", "mllama", "qwen3_5")))


@pytest.mark.parametrize(("kind", "advice"), [("gemma3", "take gemma3_text, with its"), ("mllama", "for text alone")])
def test_a_new_model_of_a_composite_architecture_is_refused(kind: str, advice: str, text_examples: Path) -> None:
    assert advice in composite_message(kind, "causal-lm")
    with pytest.raises(InputError, match=rf"student\.model\.type: {kind} reads more than text.*{advice}"):
        describe(ArchitectureModel(type=kind), read_facts(text_examples), "student.model")
