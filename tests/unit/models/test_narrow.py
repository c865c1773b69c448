"""A model in half the bytes."""

import copy

import pytest
import torch

from tests.unit.models.small import network
from understudy.models.narrow import narrowed
from understudy.models.tasks import ImageModel, TextModel


def test_a_language_models_weights_take_half_and_its_answers_stay_close() -> None:
    full_precision = TextModel(network("llama", tie_word_embeddings=True), 64).eval()
    half = narrowed(copy.deepcopy(full_precision), torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    net = half.get_submodule("net")
    assert net.get_parameter("lm_head.weight") is net.get_parameter("model.embed_tokens.weight")
    tokens = torch.arange(16).view(1, 16)
    with torch.no_grad():
        close, exact = half(tokens).logits, full_precision(tokens).logits
    assert close.dtype is torch.bfloat16
    torch.testing.assert_close(close.float(), exact, rtol=0.05, atol=0.05)


def test_positions_and_running_means_stay_as_they_are() -> None:
    model = narrowed(TextModel(network("llama"), 64), torch.bfloat16)
    assert {buffer.dtype for buffer in model.buffers()} == {torch.float32}


def test_images_come_in_the_type_of_the_weights() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 3))
    full_precision = ImageModel(net, [0.5], [0.2])
    half = narrowed(copy.deepcopy(full_precision), torch.bfloat16)
    images = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    torch.testing.assert_close(half(images).logits.float(), full_precision(images).logits, rtol=0.05, atol=0.05)


def test_a_batch_normalisation_stays_in_one_type() -> None:
    """torch refuses weights in bf16 beside running means in fp32."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        torch.nn.BatchNorm2d(4, track_running_stats=False),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 36, 3),
    )
    full_precision = ImageModel(net, [0.5], [0.2]).eval()
    half = narrowed(copy.deepcopy(full_precision), torch.bfloat16)
    images = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    torch.testing.assert_close(half(images).logits.float(), full_precision(images).logits, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("empty", [True, False])
def test_fp32_leaves_all_as_it_is(empty: bool) -> None:
    with torch.device("meta" if empty else "cpu"):
        net = torch.nn.Linear(2, 2)
    assert narrowed(net, torch.float32) is net
    assert net.weight.dtype is torch.float32
