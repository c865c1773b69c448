"""Each rank's own state is loaded on that rank, beside the state that all ranks share."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from understudy.parallel.checkpoint import Checkpoints


class RankTensors:
    """Some tensors, as a rank has them."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def state_dict(self) -> dict[str, Any]:
        return self.tensors

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.tensors = state_dict


def test_every_rank_gets_its_own_back(ranks: Any, tmp_path: Path) -> None:
    """Of several objects with the same names; some ranks have tensors that others lack."""
    for rank, states in enumerate(ranks.run(2, saved_and_loaded, tmp_path)):
        assert states[0] == {"a": [rank], "steps": 7 + rank, **({"more": [1.0, 2.0]} if rank else {})}
        assert states[1] == {"a": [10 + rank]}


def saved_and_loaded(folder: Path) -> list[dict[str, Any]]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        rank = dist.get_rank()
        more = {"more": torch.tensor([1.0, 2.0])} if rank else {}
        first = RankTensors({"a": torch.tensor([rank]), "steps": torch.tensor(7 + rank), **more})
        second = RankTensors({"a": torch.tensor([10 + rank])})
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        checkpoints = Checkpoints(folder, model, optimizer, rank_states=[first, second])
        checkpoints.save(1, "{}")
        checkpoints.finish()
        restored = [RankTensors({}), RankTensors({})]
        Checkpoints(folder, model, optimizer, rank_states=restored).load(1)
        return [{name: tensor.tolist() for name, tensor in state.tensors.items()} for state in restored]
    finally:
        dist.destroy_process_group()
