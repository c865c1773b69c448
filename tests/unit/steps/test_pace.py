import pytest

from understudy.steps.pace import Pace


def test_the_time_left_is_what_the_rest_takes_at_the_pace_since_the_last_setback() -> None:
    pace = Pace()
    assert pace.left(10, 100, 5.0) == 0, "one look says nothing of a pace"
    assert pace.left(20, 100, 10.0) == pytest.approx(40.0)
    assert pace.left(15, 100, 60.0) == 0, "it was thrown back"
    assert pace.left(35, 100, 70.0) == pytest.approx(32.5)
    assert pace.left(100, 100, 90.0) == 0


def test_a_line_is_worth_it_when_something_moved_and_the_last_one_is_a_while_ago() -> None:
    pace, logged = Pace(), []
    for now in range(100, 140):
        pace.left(min(now, 125), 200, float(now))
        logged += [now] if pace.is_worth_a_line(float(now)) else []
    assert logged == [100, 110, 120, 130]
