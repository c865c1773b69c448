from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from understudy.errors import InputError
from understudy.parallel.activation_checkpointing import checkpoint_activations


def model(kind: str) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification

    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    if kind == "vit":
        config = AutoConfig.for_model("vit", **size, image_size=8, patch_size=4, num_labels=3)
        return AutoModelForImageClassification.from_config(config).train()
    config = AutoConfig.for_model("llama", **size, num_key_value_heads=2, vocab_size=20, attention_dropout=0.3)
    return AutoModelForCausalLM.from_config(config).train()


def inputs(kind: str) -> Tensor:
    return torch.rand(2, 3, 8, 8) if kind == "vit" else torch.arange(16).view(2, 8)


def backward(kind: str, recompute: Literal["none", "full", "selective"]) -> tuple[list[Tensor], int, float]:
    """Gradients, the bytes kept for the backward pass, and the floating-point operations of all."""
    from torch.utils.flop_counter import FlopCounterMode

    net, saved = model(kind), dict[int, int]()
    if recompute != "none":
        checkpoint_activations(net, recompute, "student.train")

    def keep(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    options = {} if kind == "vit" else {"use_cache": False}
    torch.manual_seed(1)
    batch = inputs(kind)
    weights = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    with FlopCounterMode(display=False) as counter:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = net(batch, **options).logits.square().sum()
        loss.backward()
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    return gradients, sum(size for storage, size in saved.items() if storage not in weights), counter.get_total_flops()


@pytest.mark.parametrize("kind", ["llama", "vit"])
def test_gradients_are_the_same_bits_and_less_is_kept(kind: str) -> None:
    plain, most, least = backward(kind, "none")
    for recompute in ("full", "selective"):
        gradients, saved, operations = backward(kind, recompute)  # type: ignore[arg-type]
        assert all(torch.equal(gradient, expected) for gradient, expected in zip(gradients, plain, strict=True))
        assert saved < most
        assert operations > least


@pytest.mark.parametrize("kind", ["llama", "vit"])
def test_selective_computes_less_again(kind: str) -> None:
    assert backward(kind, "selective")[2] < backward(kind, "full")[2]


def test_a_model_is_asked_as_it_is_where_nothing_is_learned() -> None:
    net = model("llama").eval()
    with torch.no_grad():
        before = net(inputs("llama"), use_cache=False).logits
        checkpoint_activations(net, "full", "student.train")
        assert torch.equal(net(inputs("llama"), use_cache=False).logits, before)


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(InputError, match=r"student\.train\.activation_checkpointing: the model has no repeated"):
        checkpoint_activations(nn.Linear(2, 2), "full", "student.train")


@pytest.mark.parametrize("recompute", ["none", "full", "selective"])
def test_running_means_count_a_batch_once(recompute: Literal["none", "full", "selective"]) -> None:
    torch.manual_seed(0)
    net = nn.Module()
    net.blocks = nn.ModuleList(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for _ in range(2))
    if recompute != "none":
        checkpoint_activations(net, recompute, "student.train")
    batch, norm = torch.rand(8, 3), nn.BatchNorm1d(3)
    hidden = batch
    for block in net.blocks:
        hidden = block(hidden)
    hidden.square().sum().backward()
    norm(net.blocks[0][0](batch))
    norm_of_block = net.blocks[0][1]
    assert norm_of_block.num_batches_tracked == 1
    assert torch.equal(norm_of_block.running_mean, norm.running_mean)
    assert torch.equal(norm_of_block.running_var, norm.running_var)


def test_keys_and_values_are_not_kept_in_training() -> None:
    from understudy.models.tasks import TextModel

    values: dict[str, Any] = {}

    class Net(nn.Module):
        def forward(self, inputs: Tensor, use_cache: bool = True) -> Tensor:
            values["use_cache"] = use_cache
            return inputs[..., None].float()

    TextModel(Net(), 1)(torch.zeros(1, 2, dtype=torch.long))
    assert values == {"use_cache": False}
