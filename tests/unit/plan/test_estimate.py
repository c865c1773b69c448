"""From bytes and operations to gibibytes, seconds and hours."""

import pytest

from understudy.plan.estimate import CONTEXT, EFFICIENCY, FRAGMENTED, estimate
from understudy.plan.hardware import Hardware
from understudy.plan.ledger import Peak
from understudy.plan.trace import Traced
from understudy.recipe import Degrees, Pipeline, Train

GPU = Hardware(memory=10, tflops={"bf16": 100, "fp32": 20}, link=100, network=10, price=2)
GIB, TERA, GIGA = 2**30, 10**12, 10**9


def traced(
    memory: int = GIB, flops: int = TERA, traffic: dict[tuple[str, tuple[int, ...]], int] | None = None
) -> Traced:
    return Traced(Peak(memory, "forward and backward", {"parameters": memory}), 0, flops, traffic or {}, 0)


def test_memory_has_what_cannot_be_used_and_what_is_beside_it() -> None:
    for size, fits in ((8, True), (9, False)):
        result = estimate(Train(steps=1), Degrees(), [traced(size * GIB)], GPU, 1, "bf16")
        assert result.memory == pytest.approx(size * (1 + FRAGMENTED) + CONTEXT)
        assert result.fits is fits


def test_the_slowest_and_the_fullest_rank_count() -> None:
    ranks = [traced(flops=TERA), traced(memory=2 * GIB, flops=3 * TERA)]
    result = estimate(Train(steps=1, gradient_accumulation_steps=2), Degrees(pp=2), ranks, GPU, 2, "bf16")
    assert result.compute == pytest.approx(3 / (100 * EFFICIENCY))
    assert result.traced is ranks[1]


@pytest.mark.parametrize(("schedule", "stages"), [("1F1B", 1), ("Interleaved1F1B", 2)])
def test_stages_wait_as_the_theory_says(schedule: str, stages: int) -> None:
    """(p - 1) / m of the time in which they compute (Narayanan et al. 2021), divided by a rank's stages."""
    train = Train(steps=1, gradient_accumulation_steps=6, pipeline=Pipeline.model_validate({"schedule": schedule}))
    result = estimate(train, Degrees(pp=4), [traced()], GPU, 4, "bf16")
    assert result.bubble == pytest.approx(result.compute * 3 / (6 * stages))
    assert result.step == result.compute + result.bubble


@pytest.mark.parametrize("operation", ["allreduce_", "all_reduce"])
def test_what_is_summed_goes_around_twice(operation: str) -> None:
    sent = traced(flops=0, traffic={(operation, (0, 1, 2, 3)): 4 * GIGA})
    result = estimate(Train(steps=1), Degrees(tp=4), [sent], GPU, 4, "bf16")
    assert result.communication == pytest.approx(2 * 4 * 3 / 4 / 100)


@pytest.mark.parametrize(("per_node", "speed"), [(2, 100), (1, 10)])
def test_what_is_sent_goes_over_the_link_that_its_ranks_have(per_node: int, speed: int) -> None:
    sent = traced(flops=0, traffic={("send", (0, 1)): 2 * GIGA})
    result = estimate(Train(steps=1), Degrees(tp=2), [sent], GPU, per_node, "bf16")
    assert result.communication == pytest.approx(2 / 2 / speed)


def test_what_fully_shard_sends_is_hidden_as_far_as_something_is_computed() -> None:
    gathered = {("_allgather_base_", (0, 1)): 20 * GIGA}
    for flops, exposed in ((0, 1.0), (TERA * 100 * EFFICIENCY / 4, 0.75), (10**15, 0.0)):
        result = estimate(
            Train(steps=1), Degrees(dp_shard=2), [traced(flops=round(flops), traffic=gathered)], GPU, 1, "bf16"
        )
        assert result.communication == pytest.approx(exposed, abs=1e-9)


def test_copies_send_their_gradients_in_every_step_and_replicas_that_train_apart_do_not() -> None:
    ranks = [traced(memory=GIGA, flops=0)]
    together, independent = (
        estimate(Train.model_validate({"steps": 1, **settings}), Degrees(dp_replicate=2), ranks, GPU, 2, "bf16")
        for settings in ({}, {"diloco": {"every": 100}})
    )
    assert together.communication == pytest.approx(2 * 0.5 / 100)
    assert independent.communication == 0


def test_hours_are_those_of_all_steps() -> None:
    result = estimate(Train(steps=1), Degrees(), [traced(flops=round(TERA * 100 * EFFICIENCY))], GPU, 1, "bf16")
    assert result.hours(7200) == pytest.approx(2)
