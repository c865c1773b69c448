import pytest
import torch

from understudy.errors import InputError
from understudy.train.precision import autocast, precision

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(params=[True, False])
def able(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the GPU computes in bf16; where it does not, torch would still emulate it."""
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or request.param
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old GPU")
    return bool(request.param)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auto", torch.float32),
        ("fp32", torch.float32),
        ("bf16", torch.bfloat16),
        ("fp16", torch.float16),
        ("fp8", torch.bfloat16),
    ],
)
def test_a_cpu_computes_in_full_unless_told_otherwise(name: str, expected: torch.dtype) -> None:
    assert precision(name, CPU) is expected


def test_auto_takes_what_the_gpu_computes_in(able: bool) -> None:
    assert precision("auto", GPU) is (torch.bfloat16 if able else torch.float32)
    assert precision("fp32", GPU) is torch.float32


def test_bf16_on_a_gpu_without_it_is_refused(able: bool) -> None:
    if able:
        assert precision("bf16", GPU) is torch.bfloat16
        return
    with pytest.raises(InputError, match=r"train\.precision: Old GPU does not compute in bf16; use fp32"):
        precision("bf16", GPU)


@pytest.mark.parametrize(("capability", "able"), [((8, 0), False), ((8, 9), True), ((9, 0), True)])
def test_fp8_on_a_gpu_without_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], able: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old GPU")
    if able:
        assert precision("fp8", GPU) is torch.bfloat16
        return
    with pytest.raises(InputError, match=r"train\.precision: Old GPU does not compute in fp8; use bf16"):
        precision("fp8", GPU)


def test_half_precision_is_for_matrix_products_and_not_for_weights_and_sums() -> None:
    layer, inputs = torch.nn.Linear(4, 3), torch.randn(2, 4)
    with autocast(torch.bfloat16, CPU):
        outputs = layer(inputs)
        loss = torch.nn.functional.cross_entropy(outputs.float(), torch.tensor([0, 1]))
    loss.backward()
    assert outputs.dtype is torch.bfloat16
    assert loss.dtype is layer.weight.dtype is torch.float32
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is torch.float32
    with autocast(torch.float32, CPU):
        assert layer(inputs).dtype is torch.float32
