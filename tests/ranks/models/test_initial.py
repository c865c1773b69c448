from typing import Any

import pytest
import torch
from torch import Tensor, nn

from understudy.models.build import empty_model, is_empty, materialize
from understudy.models.facts import Description
from understudy.models.initial import compute_buffers, draw_weights
from understudy.models.tasks import task_model
from understudy.parallel.apply import Spread
from understudy.recipe import Degrees

CPU = torch.device("cpu")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
LLAMA = {"model_type": "llama", **SMALL, "num_key_value_heads": 2, "vocab_size": 21}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "tied": {**LLAMA, "tie_word_embeddings": True},
    "gpt2": {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 21},
    "bert": {"model_type": "bert", **SMALL, "vocab_size": 21, "is_decoder": True},
    "mamba": {"model_type": "mamba", "hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 21, "state_size": 4},
    "vit": {"model_type": "vit", **SMALL, "image_size": 8, "patch_size": 4, "num_labels": 3},
    "dinov2": {"model_type": "dinov2", **SMALL, "image_size": 8, "patch_size": 4, "num_labels": 3},
    "swin": {"model_type": "swin", "embed_dim": 8, "depths": [2], "num_heads": [2], "image_size": 8, "patch_size": 2,
             "window_size": 2, "num_labels": 3},
    "resnet": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8], "depths": [1], "num_labels": 3},
}  # fmt: skip
TEXTS = {"llama", "tied", "gpt2", "bert", "mamba"}


def description(name: str) -> Description:
    config = dict(CONFIGS[name])
    if name in TEXTS:
        ids = {"bos_token_id": 0, "eos_token_id": 0}
        about: dict[str, Any] = {"task": "causal-lm", "vocab_size": 21, "eos_id": 0, "sequence_length": 8}
        return {**about, "kind": "transformers", "config": {**config, **ids}}  # type: ignore[return-value]
    image = {"labels": ["a", "b", "c"], "image": {"size": 8, "channels": 3}, "mean": [0.0] * 3, "std": [1.0] * 3}
    return {"task": "image-classification", **image, "kind": "transformers", "config": config}  # type: ignore[return-value]


def drawn(name: str, seed: int = 1, **changes: Any) -> nn.Module:
    model = empty_model(_changed(description(name), changes))
    assert is_empty(model)
    materialize(model, CPU)
    draw_weights(model.get_submodule("net"), seed)
    return model


def _changed(described: Description, changes: dict[str, Any]) -> Description:
    assert described["kind"] == "transformers"
    return {**described, "config": {**described["config"], **changes}}


def spread(name: str, degrees: dict[str, int]) -> tuple[list[tuple[str, list[float]]], float]:
    """The weights and buffers of a model that was spread before it had any, whole, and the share that a rank kept."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    dist.init_process_group("gloo")
    try:
        over = Spread(Degrees.model_validate(degrees), CPU, torch.float32)
        model = over.over_ranks(empty_model(description(name)), {})
        materialize(model, CPU)
        draw_weights(model.get_submodule("net"), 1)
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        split = [tensor for tensor in tensors.values() if isinstance(tensor, DTensor)]
        part = sum(tensor.to_local().numel() for tensor in split) / sum(tensor.numel() for tensor in split)
        weights = {
            key: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for key, tensor in tensors.items()
        }
        return [(key, tensor.detach().flatten().tolist()) for key, tensor in weights.items()], part
    finally:
        dist.destroy_process_group()


def values(model: nn.Module) -> list[tuple[str, list[float]]]:
    tensors: list[tuple[str, Tensor]] = [*model.named_parameters(), *model.named_buffers()]
    return [(name, tensor.detach().flatten().tolist()) for name, tensor in tensors]


@pytest.mark.parametrize("name", CONFIGS)
def test_initial_weights_are_the_same_bits_in_shards(ranks: Any, name: str) -> None:
    alone = values(drawn(name))
    for names, part in ranks.run(2, spread, name, {"dp_shard": 2}):
        assert dict(names) == dict(alone)
        assert part < 0.7


@pytest.mark.parametrize("name", ["llama", "tied"])
@pytest.mark.parametrize("degrees", [{"tp": 2}, {"dp_shard": 2, "tp": 2}, {"dp_replicate": 2, "dp_shard": 2}])
def test_initial_weights_are_the_same_bits_under_all_degrees(ranks: Any, name: str, degrees: dict[str, int]) -> None:
    alone = values(drawn(name))
    for names, _ in ranks.run(Degrees.model_validate(degrees).world_size, spread, name, degrees):
        assert dict(names) == dict(alone)


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_distributed_as_the_architecture_says(name: str) -> None:
    """As transformers' own constructor has them, which draws from one generator, layer after layer."""
    from transformers import AutoConfig

    from understudy.models.build import auto_class

    described = description(name)
    assert described["kind"] == "transformers"
    torch.manual_seed(0)
    net = auto_class(described["task"]).from_config(AutoConfig.for_model(**described["config"]))
    plain, ours = task_model(net, described), drawn(name)
    assert [key for key, _ in plain.named_parameters()] == [key for key, _ in ours.named_parameters()]
    for (key, tensor), (_, expected) in zip(ours.named_parameters(), plain.named_parameters(), strict=True):
        if expected.unique().numel() < 3 or key.endswith("A_log"):  # constants
            torch.testing.assert_close(tensor, expected, msg=key)
        elif expected.numel() >= 100:
            assert 0.7 < float(tensor.detach().std() / expected.detach().std()) < 1.4, key
    for (key, tensor), (_, expected) in zip(ours.named_buffers(), plain.named_buffers(), strict=True):
        torch.testing.assert_close(tensor, expected, msg=key)


def test_a_weight_follows_from_seed_and_name_alone() -> None:
    small, deep = dict(drawn("llama").named_parameters()), dict(drawn("llama", num_hidden_layers=4).named_parameters())
    assert all(torch.equal(tensor, deep[name]) for name, tensor in small.items())
    other_seed = dict(drawn("llama", seed=2).named_parameters())
    assert not any(torch.equal(tensor, other_seed[name]) for name, tensor in small.items() if tensor.ndim > 1)
    layer = "net.model.layers.{}.self_attn.q_proj.weight"
    assert not torch.equal(small[layer.format(0)], small[layer.format(1)])


def test_only_buffers_that_no_file_has_are_computed_where_the_weights_are_there() -> None:
    model = drawn("llama")
    before = values(model)
    with torch.no_grad():
        net: Any = model.get_submodule("net")
        net.model.rotary_emb.inv_freq.zero_()
    compute_buffers(net)
    assert values(model) == before
