"""Its losses are compared in tests/ranks/train/test_parity.py."""

from typing import Any

import torch
from torch import nn

from tests.ranks.parallel.test_context import mesh, model
from understudy.errors import InputError
from understudy.parallel.tensor import tensor_parallel


def widths(plan: dict[str, str]) -> list[int] | str:
    """Of eight positions, those that each norm gets, or why not."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        model_ = model()
        try:
            tensor_parallel(model_, mesh(), plan, "student.train", by_position=True)
        except InputError as error:
            return str(error)
        counts: list[int] = []
        net: nn.Module = model_["net"]  # type: ignore[index]
        for name, module in net.named_modules():
            if name.endswith("norm"):
                module.register_forward_hook(lambda _, __, output: counts.append(output.shape[1]))
        assert net(torch.zeros(1, 8, dtype=torch.int64)).logits.shape[1] == 8
        return counts
    finally:
        dist.destroy_process_group()


def test_norms_of_blocks_see_a_ranks_positions(ranks: Any) -> None:
    """The one behind the blocks sees all."""
    assert ranks.run(2, widths, {}) == [[4, 4, 8]] * 2


def test_what_is_split_otherwise_is_refused(ranks: Any) -> None:
    for text in ranks.run(2, widths, {"model.layers.*.mlp.gate_proj": "replicate"}):
        assert text.startswith("student.train.strategy.sequence_parallel: model.layers.0.mlp.gate_proj")
        assert "is split as replicate, but only colwise and rowwise are supported" in text
