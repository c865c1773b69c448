"""Where a step's time went, as it is printed."""

import io

from rich.console import Console

from tests.unit.train.profiles import profile
from understudy.cli.profile import profile_table
from understudy.train.profile import Profile


def lines(**profiles: Profile) -> list[list[str]]:
    out = io.StringIO()
    Console(file=out, width=80).print(profile_table(profiles))
    return [line.split() for line in out.getvalue().splitlines()]


def test_a_column_a_training_and_a_row_for_what_any_of_them_spent_time_on() -> None:
    kinds_of_student = {**profile()["kinds"], "teacher": 0.01, "forward": 0.01}
    assert lines(teacher=profile(), student=profile(kinds=kinds_of_student, mfu=0.4321)) == [
        ["where", "a", "step's", "time", "went"],
        ["teacher", "student"],
        ["a", "step", "80.0", "ms", "80.0", "ms"],
        ["data", "10.0%", "10.0%"],
        ["teacher", "10.0%"],
        ["forward", "20.0%", "10.0%"],
        ["backward", "50.0%", "50.0%"],
        ["optimizer", "10.0%", "10.0%"],
        ["communication", "5.0%", "5.0%"],
        ["other", "5.0%", "5.0%"],
        ["targets", "a", "second", "8,000", "8,000"],
        ["MFU", "unknown", "43.2%"],
    ]
    assert ["teacher", "10.0%"] not in lines(teacher=profile())
