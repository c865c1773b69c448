"""Sets of degrees, ranked."""

import pytest

from tests.unit.plan.test_depth import llama, planned
from understudy.plan.hardware import Hardware
from understudy.plan.ranking import Placement, Ranking, families, ranking, workers
from understudy.recipe import AXES, Degrees


def hardware(memory: float) -> Hardware:
    return Hardware(memory=memory, tflops={"fp32": 10}, link=10, network=1, price=1)


def placement(memory: float) -> Placement:
    return Placement(hardware(memory), nodes=1, processes=2)


def names(ranked: Ranking) -> list[str]:
    return ["".join(name for name in AXES if getattr(estimate.degrees, name) > 1) for estimate in ranked.estimates]


def test_the_fastest_that_fits_is_first_and_the_smallest_of_those_that_do_not_fit() -> None:
    counts: list[int] = []
    all_fit = ranking(planned(llama(2)), placement(10), watched=lambda results, count: counts.append(count) or results)
    assert counts == [5]
    assert sorted(names(all_fit)) == ["cp", "dp_replicate", "dp_shard", "pp", "tp"]
    assert [estimate.step for estimate in all_fit.estimates] == sorted(estimate.step for estimate in all_fit.estimates)
    assert all_fit.best == all_fit.estimates[0]
    none_fits = ranking(planned(llama(2)), placement(0.001))
    assert none_fits.best is None
    assert [estimate.memory for estimate in none_fits.estimates] == sorted(
        estimate.memory for estimate in none_fits.estimates
    )
    between = sorted(estimate.memory for estimate in none_fits.estimates)[2]
    mixed = ranking(planned(llama(2)), placement(between))
    assert [estimate.fits for estimate in mixed.estimates] == [True, True, True, False, False]
    assert mixed.best
    assert mixed.best.memory <= between


def test_degrees_that_make_no_sense_are_listed_with_the_reason() -> None:
    ranked = ranking(planned(llama(1), batch_size=1, gradient_accumulation_steps=1), placement(10))
    reasons = {degrees.model_dump_json(exclude_defaults=True): reason for degrees, reason in ranked.refused}
    assert "does not divide" in reasons['{"dp_shard":2}']
    assert "fewer micro-batches" in reasons['{"pp":2}']


def test_fp8_is_for_hardware_that_computes_in_it() -> None:
    ranked = ranking(planned(llama(1), precision="fp8"), placement(10))
    assert not ranked.estimates
    assert "student.train.precision: the hardware does not compute in fp8, but in fp32; use one of those" in {
        why for _, why in ranked.refused
    }


def test_a_model_that_cannot_be_cut_is_no_reason_to_end() -> None:
    ranked = ranking(planned(llama(1)), placement(10))
    assert "pp" not in names(ranked)
    assert any("pp cuts a model between the blocks of an nn.ModuleList" in why for _, why in ranked.refused)


def test_one_core_has_no_processes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    with workers() as pool:
        assert pool is None


def test_degrees_that_compute_the_same_are_planned_by_one_process_after_another() -> None:
    candidates = [Degrees(tp=2, dp_shard=2), Degrees(pp=2, dp_shard=2), Degrees(tp=2, dp_replicate=2), Degrees(cp=4)]
    assert families(candidates) == [[candidates[1]], [candidates[0], candidates[2]], [candidates[3]]]
