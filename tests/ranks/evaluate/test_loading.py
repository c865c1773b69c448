import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ranks.pool import Ranks
from tests.unit.evaluate import small
from understudy.evaluate.loading import load_models
from understudy.models.facts import read_description

DEEP = {**small.LLAMA, "config": {**small.SIZES, "num_hidden_layers": 4}}
CPU = torch.device("cpu")


def shares_and_logits(folder: Path, kind: torch.dtype) -> list[Any]:
    """The share of the weights that a rank of two has before and after a call, and the logits."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    from understudy.parallel.apply import Spread
    from understudy.recipe import Degrees

    dist.init_process_group("gloo")
    spread = Spread(Degrees(dp_shard=2), CPU, torch.float32)
    model = load_models({"teacher": folder}, {"teacher": read_description(folder)}, CPU, spread, kind)["teacher"]

    def share() -> float:
        parameters = list(model.parameters())
        local_numbers = sum(
            parameter.to_local().numel() if isinstance(parameter, DTensor) else parameter.numel()
            for parameter in parameters
        )
        return local_numbers / sum(parameter.numel() for parameter in parameters)

    before = share()
    with torch.inference_mode():
        logits = model(torch.arange(6)[None] + int(os.environ["RANK"])).logits
    outcome = [before, share(), logits.float().numpy(), model.training]
    dist.destroy_process_group()
    return outcome


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_ranks_hold_shards_alone_and_answer_each_for_itself_as_a_whole_model_does(
    ranks: Ranks, tmp_path: Path, kind: torch.dtype
) -> None:
    small.saved(tmp_path / "model", DEEP, small.TEXT, 0)
    description = read_description(tmp_path / "model")
    full_model = load_models({"teacher": tmp_path / "model"}, {"teacher": description}, CPU, None, kind)["teacher"]
    outcomes = ranks.run(2, shares_and_logits, tmp_path / "model", kind)
    for rank, (before, after, logits, training) in enumerate(outcomes):
        assert before == after == pytest.approx(0.5, abs=0.05)
        with torch.inference_mode():
            assert torch.equal(torch.from_numpy(logits), full_model(torch.arange(6)[None] + rank).logits.float())
        assert not training
