"""Small language models of transformers, by the names that most of its architectures have for sizes."""

import torch
from torch import nn

SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
}
OWN: dict[str, dict[str, object]] = {"gemma2": {"head_dim": 8}, "bert": {"is_decoder": True}}
"""Further required settings of an architecture."""


def network(kind: str, **changes: object) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SIZES, **OWN.get(kind, {}), **changes})
    return AutoModelForCausalLM.from_config(config).eval()
