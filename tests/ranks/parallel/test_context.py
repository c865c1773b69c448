from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from understudy.errors import InputError
from understudy.parallel.context import _Exchange, context_parallel, own_positions


def exchanged(scattered: int, gathered: int) -> bool:
    """Whether chunks come back in order, and their gradients to where they came from."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        rank, size = dist.get_rank(), dist.get_world_size()
        sequences = torch.arange(4.0 * 6 * 8 * 2).view(4, 6, 8, 2)
        mine = sequences.chunk(size, gathered)[rank].clone().requires_grad_()
        received: Tensor = _Exchange.apply(mine, dist.group.WORLD, scattered, gathered)
        received.backward(sequences.chunk(size, scattered)[rank] * 2)
        assert mine.grad is not None
        same = torch.equal(received, sequences.chunk(size, scattered)[rank])
        return same and torch.equal(mine.grad, sequences.chunk(size, gathered)[rank] * 2)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("scattered", "gathered"), [(1, 2), (2, 1)])
def test_every_rank_gets_its_heads_of_all_positions_and_gives_them_back(
    ranks: Any, scattered: int, gathered: int
) -> None:
    assert ranks.run(2, exchanged, scattered, gathered) == [True, True]


def model(**config: Any) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    size: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 20}
    kind = config.pop("kind", "llama")
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    settings = AutoConfig.for_model(kind, **{**size, **heads, **config})
    return nn.ModuleDict({"net": AutoModelForCausalLM.from_config(settings)})


def mesh() -> DeviceMesh:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (dist.get_world_size(),))


def refusal(kind: str, config: dict[str, Any], heads_split: int) -> str:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        net = nn.ModuleDict({"net": nn.Linear(2, 2)}) if kind == "linear" else model(kind=kind, **config)
        with pytest.raises(InputError) as caught:
            context_parallel(net, mesh(), "alltoall", heads_split, "student.train")
        return str(caught.value)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("kind", "config", "heads_split", "message"),
    [
        ("linear", {}, 1, "student.train.strategy: cp needs a transformers model"),
        ("mistral", {"sliding_window": 8}, 1, "to all earlier positions, and MistralForCausalLM only to some"),
        ("llama", {}, 2, "num_key_value_heads is 2 and cannot be divided over 4 processes (cp x tp)"),
        ("llama", {"num_attention_heads": 1, "num_key_value_heads": 1}, 1, "num_attention_heads is 1 and cannot be"),
    ],
)
def test_what_cannot_be_split_is_refused(
    ranks: Any, kind: str, config: dict[str, Any], heads_split: int, message: str
) -> None:
    for text in ranks.run(2, refusal, kind, config, heads_split):
        assert message in text


def in_a_ring(dropout: float) -> tuple[str, list[int]]:
    """The output of a model with dropout, and this rank's positions of eight."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        net = model(attention_dropout=dropout)
        context_parallel(net, mesh(), "ring", 1, "student.train")
        with pytest.raises(InputError) as caught:
            net["net"](torch.zeros(1, 4, dtype=torch.int64))  # type: ignore[index]
        return str(caught.value), own_positions(8, mesh(), "ring", torch.device("cpu")).tolist()
    finally:
        dist.destroy_process_group()


def test_a_ring_draws_no_dropout_and_gives_ranks_both_ends(ranks: Any) -> None:
    (text, first), (_, second) = ranks.run(2, in_a_ring, 0.1)
    assert text.startswith("student.train.strategy: a ring has no attention dropout; set it to 0 in the model's")
    assert (first, second) == ([0, 1, 6, 7], [2, 3, 4, 5])
