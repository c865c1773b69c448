import pytest
import torch
from torch import Tensor, nn

from tests.unit.parallel.test_activation_checkpointing import inputs, model
from understudy.errors import InputError
from understudy.parallel import activation_offload
from understudy.parallel.activation_checkpointing import checkpoint_activations
from understudy.parallel.activation_offload import offload_activations
from understudy.recipe import Recompute


def backward(recompute: Recompute, monkeypatch: pytest.MonkeyPatch, *, offload: bool) -> tuple[list[Tensor], int]:
    """Gradients, and the bytes that were moved."""
    net, moved = model("llama"), []
    away = activation_offload._to_cpu

    def counted(tensor: Tensor) -> Tensor:
        moved.append(tensor)
        return away(tensor)

    monkeypatch.setattr(activation_offload, "_to_cpu", counted)
    if recompute != "none":
        checkpoint_activations(net, recompute, "student.train")
    if offload:
        offload_activations(net, "student.train")
    torch.manual_seed(1)
    net(inputs("llama"), use_cache=False).logits.square().sum().backward()
    weights = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    assert not any(tensor.untyped_storage().data_ptr() in weights for tensor in moved), "weights stay where they are"
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    return gradients, sum(tensor.nbytes for tensor in moved)


def test_gradients_are_the_same_bits_and_less_is_moved_of_blocks_that_are_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds: tuple[Recompute, ...] = ("full", "selective", "none")
    plain, nothing = backward("none", monkeypatch, offload=False)
    assert nothing == 0
    sizes = []
    for kind in kinds:
        gradients, size = backward(kind, monkeypatch, offload=True)
        assert all(torch.equal(gradient, expected) for gradient, expected in zip(gradients, plain, strict=True))
        sizes.append(size)
    assert 0 < sizes[0] < sizes[1] < sizes[2]


def test_what_is_only_asked_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model("llama").eval()
    offload_activations(net, "student.train")
    monkeypatch.delattr(activation_offload, "_to_cpu")
    with torch.inference_mode():
        net(inputs("llama"), use_cache=False)


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(InputError, match=r"student\.train\.offload: the model has no repeated blocks"):
        offload_activations(nn.Linear(2, 2), "student.train")
