"""How the nodes of a job find each other."""

from typing import Any

import pytest

from understudy.agent import rendezvous


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {
                "PET_NNODES": "3:3",
                "PET_RDZV_ID": "x",
                "PET_RDZV_BACKEND": "c10d",
                "PET_RDZV_ENDPOINT": "x-worker-0:29400",
            },
            {
                "min_nodes": 3,
                "max_nodes": 3,
                "run_id": "x",
                "rdzv_backend": "c10d",
                "rdzv_endpoint": "x-worker-0:29400",
            },
        ),
        (
            {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "x-node-0", "PET_MASTER_PORT": "29500"},
            {
                "min_nodes": 3,
                "max_nodes": 3,
                "run_id": "none",
                "rdzv_backend": "static",
                "rdzv_endpoint": "x-node-0:29500",
                "rdzv_configs": {"rank": 2},
            },
        ),
    ],
)
def test_nodes_find_each_other_as_either_operator_says(given: dict[str, str], expected: dict[str, Any]) -> None:
    assert rendezvous.rendezvous(given) == expected
