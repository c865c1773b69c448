import pytest

from understudy.evaluate.steadiness import is_ratio_reliable, on_latencies


def models(**ranges):
    """Models by role with their fastest and slow calls in milliseconds; the student takes 14.5 % of the teacher's."""
    return {
        role: {"latency": {"min_ms": fastest, "p95_ms": slow, "ratio_to_teacher": 0.145}}
        for role, (fastest, slow) in ranges.items()
    }


def test_all_noisy_models_are_named_the_noisiest_first_with_the_ratio():
    noisy = models(student=(0.989, 1.5), control=(1.0, 4.0), teacher=(1.15, 28.5))
    assert on_latencies(noisy, "student") == (
        "Latencies vary too much to be reliable: the teacher's are from 1.15 to 28.5 ms, the control's from 1 to 4 ms "
        "(minimum to 95th percentile). Nor is the ratio of the student's to the teacher's: 14.5 % by all calls, 86 % "
        "by the fastest. Measure on a machine that does nothing else."
    )


def test_a_ratio_of_two_steady_models_does_not_depend_on_a_third():
    noisy = models(student=(1.0, 1.5), control=(1.0, 4.0), teacher=(1.15, 1.2))
    assert "The ratio of the student's to the teacher's does not depend on them." in on_latencies(noisy, "student")
    assert "Nor is the ratio of the control's to the teacher's" in on_latencies(noisy, "control")


@pytest.mark.parametrize(("slow", "is_reliable"), [(2.9, True), (3.1, False)])
@pytest.mark.parametrize("role", ["teacher", "student"])
def test_a_ratio_is_reliable_if_both_of_its_models_are_steady(role, slow, is_reliable):
    both = models(**({"teacher": (1.0, 1.1), "student": (1.0, 1.1)} | {role: (1.0, slow)}))
    assert is_ratio_reliable(both, "student") is is_reliable
    assert bool(on_latencies(both, "student")) is not is_reliable


def test_an_unmeasured_ratio_has_no_numbers():
    assert "Nor is the ratio of the student's to the teacher's. Measure" in on_latencies(
        {"student": {}, **models(teacher=(1.0, 9.0))}, "student"
    )
