"""What each rank has for itself comes back to that rank, beside what all share."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from understudy.parallel.checkpoint import Checkpoints


class Kept:
    """Some tensors, as a rank has them."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def state_dict(self) -> dict[str, Any]:
        return self.tensors

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.tensors = state_dict


def test_every_rank_gets_its_own_back(ranks: Any, tmp_path: Path) -> None:
    """Of several things, under the same names; some ranks have what others have not."""
    for rank, states in enumerate(ranks.run(2, saved_and_loaded, tmp_path)):
        assert states[0] == {"a": [rank], "steps": 7 + rank, **({"more": [1.0, 2.0]} if rank else {})}
        assert states[1] == {"a": [10 + rank]}


def saved_and_loaded(folder: Path) -> list[dict[str, Any]]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        rank = dist.get_rank()
        more = {"more": torch.tensor([1.0, 2.0])} if rank else {}
        first = Kept({"a": torch.tensor([rank]), "steps": torch.tensor(7 + rank), **more})
        second = Kept({"a": torch.tensor([10 + rank])})
        model = nn.Linear(2, 2)
        chosen = torch.optim.SGD(model.parameters(), lr=0.1)
        checkpoints = Checkpoints(folder, model, chosen, rank_states=[first, second])
        checkpoints.save(1, "{}")
        checkpoints.finish()
        again = [Kept({}), Kept({})]
        Checkpoints(folder, model, chosen, rank_states=again).load(1)
        return [{name: tensor.tolist() for name, tensor in state.tensors.items()} for state in again]
    finally:
        dist.destroy_process_group()
