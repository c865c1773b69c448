"""How the nodes of a job find each other."""

import pytest

from understudy.agent.rendezvous import Rendezvous, rendezvous


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            {
                "PET_NNODES": "3:3",
                "PET_RDZV_ID": "x",
                "PET_RDZV_BACKEND": "c10d",
                "PET_RDZV_ENDPOINT": "x-worker-0:29400",
            },
            Rendezvous(3, 3, "x", "c10d", "x-worker-0:29400"),
        ),
        (
            {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "x-node-0", "PET_MASTER_PORT": "29500"},
            Rendezvous(3, 3, "none", "static", "x-node-0:29500", {"rank": 2}),
        ),
    ],
)
def test_nodes_find_each_other_under_either_operator(variables: dict[str, str], expected: Rendezvous) -> None:
    assert rendezvous(variables) == expected
