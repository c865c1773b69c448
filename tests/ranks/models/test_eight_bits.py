"""A model whose linear layers are integers, beside the one that it was, whole and in shards."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_ranks
from tests.unit.models.small import network
from tests.unit.models.test_rounded import filled
from understudy.errors import InputError
from understudy.models.eight_bits import EightBits
from understudy.models.files import load_model, read_weights
from understudy.models.tasks import TextModel

TOKENS = torch.arange(24).view(2, 12) % 64


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_it_computes_with_the_weights_that_its_integers_and_scales_are(kind: str) -> None:
    """Against the plain network with weights rounded by numpy."""
    plain = TextModel(network(kind), 64)
    with torch.inference_mode():
        exact = plain(TOKENS).logits
    ours = filled(EightBits, TextModel(network(kind), 64), plain)
    layers = {name: layer for name, layer in ours.named_modules() if isinstance(layer, EightBits)}
    assert len(layers) == {"llama": 4 * 7 + 1, "gpt2": 4 * 4}[kind]  # the last layer of GPT-2 is its embeddings
    for name in layers:
        weight = plain.get_parameter(f"{name}.weight")
        rows = weight.detach().numpy()
        scales = torch.from_numpy(np.abs(rows).max(axis=1) / 127).bfloat16().float().numpy()[:, None]
        weight.data = torch.from_numpy(np.round(rows / scales) * scales)
    with torch.inference_mode():
        torch.testing.assert_close(ours(TOKENS).logits, plain(TOKENS).logits, rtol=1e-5, atol=1e-6)
        assert not torch.equal(ours(TOKENS).logits, exact)


def test_rows_use_all_integers_and_are_off_by_half_a_step() -> None:
    rows = torch.randn(64, 1000, generator=torch.Generator().manual_seed(1)) * torch.logspace(-6, 3, 64)[:, None]
    numbers, scales = EightBits.quantize(rows)
    assert (numbers.abs().amax(1) == 127).all()
    assert ((numbers * scales[:, None] - rows).abs() <= scales[:, None] * 0.5001).all()
    assert torch.equal(scales.bfloat16().float(), scales)


def test_a_row_of_zeros_stays_and_one_that_is_no_number_is_heard() -> None:
    numbers, scales = EightBits.quantize(torch.zeros(1, 4))
    assert not numbers.any()
    assert scales.isfinite().all()
    broken = nn.Linear(2, 2, bias=False)
    broken.weight.data[0, 0] = float("nan")
    model = filled(EightBits, nn.Sequential(nn.Linear(2, 2, bias=False)), nn.Sequential(broken))
    assert model(torch.ones(1, 2))[0].isnan().tolist() == [True, False]


def test_products_are_in_the_type_that_is_computed_in() -> None:
    plain = nn.Sequential(nn.Linear(64, 8))
    ours, inputs = filled(EightBits, nn.Sequential(nn.Linear(64, 8)), plain), torch.randn(3, 64)
    ours[0].bias = plain[0].bias  # type: ignore[index]
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        half = ours(inputs)
    assert half.dtype is torch.bfloat16
    torch.testing.assert_close(half.float(), plain(inputs), rtol=0.03, atol=0.03)


@pytest.fixture
def teacher(ranks: Any, tmp_path: Path, text_examples: Path) -> jobs.JobSpec:
    """A trained one."""
    job = jobs.spec(tmp_path / "teacher", text_examples, jobs.LLAMA, train={"steps": 30})
    ranks.run(1, train_ranks, job)
    return job


def quantised_teacher(folder: str, shards: int) -> tuple[dict[str, Any], Any, int]:
    """A rank's saved teacher: its integers and scales, gathered; its logits; and the bytes of its part."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    from understudy.models.build import empty_model, move_buffers
    from understudy.models.facts import read_description
    from understudy.parallel.apply import Spread
    from understudy.recipe import Degrees
    from understudy.train.frozen_teachers import teacher_over_ranks

    dist.init_process_group("gloo")
    try:
        description, cpu = read_description(Path(folder)), torch.device("cpu")
        spread = Spread(Degrees(dp_shard=shards), cpu, torch.float32)
        model = teacher_over_ranks(empty_model(description), spread, "int8")
        read_weights(model, Path(folder), cpu, full_model=empty_model(description))
        move_buffers(model, cpu)
        state, resident_bytes = {}, 0
        for name, tensor in model.state_dict().items():
            resident_bytes += (tensor.to_local() if isinstance(tensor, DTensor) else tensor).nbytes
            state[name] = (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).tolist()
        with torch.inference_mode():
            return state, model.eval()(TOKENS % description["vocab_size"]).logits.tolist(), resident_bytes
    finally:
        dist.destroy_process_group()


def test_a_trained_teacher_says_nearly_the_same_and_the_same_bits_in_shards(ranks: Any, teacher: jobs.JobSpec) -> None:
    from understudy.models.facts import read_description

    folder = teacher.output
    description = read_description(folder)
    exact = load_model(folder, description, torch.device("cpu"))
    [(state, teacher_logits, resident_bytes)] = ranks.run(1, quantised_teacher, str(folder), 1)
    with torch.inference_mode():
        right = exact(TOKENS % description["vocab_size"]).logits.log_softmax(-1)
    ours = torch.tensor(teacher_logits).log_softmax(-1)
    divergence = (right.exp() * (right - ours)).sum(-1)
    assert 0 < divergence.mean() < 1e-4
    parts = ranks.run(2, quantised_teacher, str(folder), 2)
    assert all((part_state, part_logits) == (state, teacher_logits) for part_state, part_logits, _ in parts)
    assert sum(share for _, _, share in parts) == resident_bytes


def test_layers_in_integers_are_not_split(ranks: Any, teacher: jobs.JobSpec) -> None:
    [message, _] = ranks.run(2, refused, str(teacher.output))
    assert message == "student.teacher_precision: layers in int8 are not split (tp); use bf16"


def refused(folder: str) -> str:
    """The error about a teacher beside a student whose layers are split."""
    import torch.distributed as dist

    from understudy.models.build import empty_model
    from understudy.models.facts import read_description
    from understudy.parallel.apply import Spread
    from understudy.recipe import Degrees
    from understudy.train.frozen_teachers import teacher_over_ranks

    dist.init_process_group("gloo")
    try:
        spread = Spread(Degrees(tp=2), torch.device("cpu"), torch.float32)
        with pytest.raises(InputError) as caught:
            teacher_over_ranks(empty_model(read_description(Path(folder))), spread, "int8")
        return str(caught.value)
    finally:
        dist.destroy_process_group()
