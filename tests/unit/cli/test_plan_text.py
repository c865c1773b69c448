"""The plan's text; the plans of recipes are tested in test_plan.py."""

import pytest

from understudy.cli.plan_text import _seconds, _time


@pytest.mark.parametrize(
    ("hours", "text"), [(1e-5, "0.0 s"), (0.016, "57.6 s"), (0.02, "1.2 min"), (0.99, "59.4 min"), (24.614, "24.61 h")]
)
def test_a_time_has_a_unit_that_says_something(hours: float, text: str) -> None:
    assert _time(hours) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7e-9, "0"),
        (7.47e-6, "0.000007"),
        (0.12345, "0.123"),
        (36.44, "36.4"),
        (999.7, "1,000"),
        (2013.3, "2,013"),
    ],
)
def test_seconds_are_written_out(number: float, text: str) -> None:
    assert _seconds(number) == text
