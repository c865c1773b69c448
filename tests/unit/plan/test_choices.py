"""Sets of degrees: all that there are, and those that make no sense for a training."""

from dataclasses import replace
from math import comb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.specs import training_settings
from understudy.models.facts import Facts
from understudy.plan.choices import all_degrees, refusal, suited
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.planned import Planned
from understudy.recipe import Degrees, Train

LORA = {"rank": 2, "modules": ["q_proj"]}
TEXT: Facts = {"task": "causal-lm", "vocab_size": 300, "eos_id": 0, "sequence_length": 8}
IMAGES: Facts = {
    "task": "image-classification",
    "labels": ["a", "b"],
    "image": {"size": 8, "channels": 1},
    "mean": [0.5],
    "std": [0.5],
}


def planned(facts: Facts = TEXT, **train: Any) -> Planned:
    config = {"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 4}
    model: Any = {"kind": "transformers", "config": config, **facts}
    examples = PlaceholderExamples(facts, 9)
    return Planned(training_settings(Train(steps=1, **train)), model, {}, examples)


def with_settings(job: Planned, **changes: Any) -> Planned:
    """The same training with other settings."""
    return replace(job, settings=replace(job.settings, **changes))


@given(st.integers(0, 6))
def test_every_way_to_share_out_a_power_of_two_is_there_once(power: int) -> None:
    choices = all_degrees(2**power)
    assert len(choices) == len({tuple(degrees.model_dump().items()) for degrees in choices}) == comb(power + 4, 4)
    assert all(degrees.world_size == 2**power for degrees in choices)


@pytest.mark.parametrize(
    ("mesh_degrees", "train", "reason"),
    [
        (Degrees(dp_shard=8), {"batch_size": 12}, "batch_size 12 does not divide into 8 parts"),
        (Degrees(pp=4), {"gradient_accumulation_steps": 2}, "fewer micro-batches than stages (2 for 4)"),
        (Degrees(tp=4), {}, "layers would be split over nodes"),
        (
            Degrees(tp=2),
            {"compile": True},
            "compile: layers, sequences and stages that are split are not compiled (with some schedules the result is "
            "wrong); use single, ddp, fsdp or hsdp, or set it to false",
        ),
        (
            Degrees(tp=2),
            {"lora": LORA},
            "lora: layers are not split beside adapters (tp); use fsdp, cp or pp",
        ),
        (
            Degrees(dp_shard=2),
            {"compression": {"type": "bf16"}},
            "compression: is for whole models on several processes; remove it, or use strategy: ddp",
        ),
        (
            Degrees(tp=2),
            {"optimizer": {"name": "adamw8bit"}},
            "optimizer.name: adamw8bit rounds blocks of whole rows, which tp 2 splits; use adamw, or a strategy "
            "without tp",
        ),
        (Degrees(cp=16), {}, "sequences of 8 do not divide into 16 parts"),
        (Degrees(cp=4, tp=2), {}, "heads (8, 4) do not divide over tp x cp = 8"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    mesh_degrees: Degrees, train: dict[str, Any], reason: str
) -> None:
    assert refusal(planned(**train), mesh_degrees, per_node=2) == reason


def test_degrees_whose_processes_do_not_divide_into_copies_of_the_teacher_are_refused() -> None:
    job = with_settings(planned(), teacher_shards=4)
    reason = refusal(job, Degrees(dp_shard=2), per_node=2)
    assert reason == "teacher_shards: 2 processes do not divide into copies of 4 shards; take a divisor of 2"
    assert refusal(job, Degrees(dp_shard=8), per_node=2) is None


@pytest.mark.parametrize(
    ("mesh_degrees", "exchange"),
    [
        (Degrees(cp=4), "alltoall"),
        (Degrees(cp=2, tp=4), "ring"),
        (Degrees(dp_shard=2), "alltoall"),
        (Degrees(cp=8, tp=2), "alltoall"),
    ],
)
def test_sequences_go_in_a_ring_where_heads_do_not_divide(mesh_degrees: Degrees, exchange: str) -> None:
    """Where a ring fits: each of its ranks has two chunks, and sequences of 8 have no 16."""
    assert suited(planned(), mesh_degrees) == (
        mesh_degrees if exchange == "alltoall" else mesh_degrees.model_copy(update={"cp_comm_type": exchange})
    )


def test_documents_that_are_apart_go_in_no_ring() -> None:
    separate, mesh_degrees = planned({**TEXT, "packing": "documents"}), Degrees(cp=2, tp=4)
    assert suited(separate, mesh_degrees) == mesh_degrees
    ring = mesh_degrees.model_copy(update={"cp_comm_type": "ring"})
    assert refusal(separate, ring, per_node=8) == "a ring does not separate documents"


def test_images_have_no_sequences() -> None:
    assert refusal(planned(IMAGES), Degrees(cp=2), per_node=8) == "there are no sequences to split"


def test_what_makes_sense_is_not() -> None:
    for mesh_degrees in (Degrees(dp_shard=8), Degrees(tp=2, dp_shard=2), Degrees(cp=4)):
        assert refusal(planned(), mesh_degrees, per_node=8) is None
