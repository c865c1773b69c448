"""What would make a training fit that does not."""

import pytest

from tests.unit.plan.test_depth import llama, planned
from tests.unit.plan.test_ranking import placement
from understudy.plan.estimate import CONTEXT
from understudy.plan.ranking import estimated
from understudy.plan.remedies import lacking
from understudy.recipe import Degrees


def test_a_change_that_is_enough_is_named_and_the_smaller_one_first() -> None:
    job = planned(llama(4), gradient_accumulation_steps=1)
    shards = Degrees(dp_shard=2)
    as_it_is = estimated(job, shards, placement(100))
    recomputing = estimated(
        planned(llama(4), gradient_accumulation_steps=1, activation_checkpointing="full"), shards, placement(100)
    )
    assert recomputing.memory < as_it_is.memory
    tight = placement((recomputing.memory + as_it_is.memory) / 2)
    message = lacking(job, estimated(job, shards, tight), tight)
    assert message.startswith(f"dp_shard 2 takes {as_it_is.memory:.2f} GiB of ")
    assert f"it fits with activation_checkpointing: full ({recomputing.memory:.2f} GiB)" in message


def test_where_no_change_is_enough_more_processes_are() -> None:
    job, small = planned(llama(2), batch_size=2, gradient_accumulation_steps=1), placement(CONTEXT + 1e-6)
    message = lacking(job, estimated(job, Degrees(dp_shard=2), small), small)
    assert message.endswith("take more processes")


def test_no_number_of_processes_helps_a_gpu_without_room_for_cuda_itself() -> None:
    job, tiny = planned(llama(2), batch_size=2, gradient_accumulation_steps=1), placement(CONTEXT)
    message = lacking(job, estimated(job, Degrees(dp_shard=2), tiny), tiny)
    assert message.endswith("CUDA and NCCL alone are assumed to take 1.00 a process: take GPUs with more memory")


@pytest.mark.parametrize(
    ("miss", "shards", "change"),
    [
        (Degrees(dp_replicate=2), Degrees(dp_shard=2), "strategy: fsdp"),
        (Degrees(dp_shard=2, zero_stage=1), Degrees(dp_shard=2), "strategy: fsdp"),
        (Degrees(dp_replicate=2, tp=2), Degrees(dp_shard=2, tp=2), "dp_shard: 2 for dp_replicate"),
    ],
)
def test_copies_that_do_not_fit_are_to_be_shards(miss: Degrees, shards: Degrees, change: str) -> None:
    job = planned(llama(4), gradient_accumulation_steps=1, activation_checkpointing="full")
    copies, sharded = estimated(job, miss, placement(100)), estimated(job, shards, placement(100))
    assert sharded.memory < copies.memory
    tight = placement((sharded.memory + copies.memory) / 2)
    assert f"it fits with {change} ({sharded.memory:.2f} GiB)" in lacking(job, estimated(job, miss, tight), tight)
