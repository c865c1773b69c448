"""The command's output of untrusted text: a registry's names, a bucket's, a rank's."""

import sys

import pytest

from understudy.cli.output import print_error, print_table, watched

FORGED = "aaa\nimportant  7\x1b[2J\x9b1A\u202e"
SPELT = r"aaa\nimportant  7\x1b[2J\x9b1A\u202e"


@pytest.fixture(params=[True, False], ids=["terminal", "elsewhere"], autouse=True)
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is a terminal that shows it: a wide one without colours."""
    for name, value in (("COLUMNS", "200"), ("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: request.param)


def test_a_name_makes_no_row_and_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("model", "version"), [[FORGED, "1"], ["größer, 大", "2"]], right=("version",))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip("─ ")]
    assert lines == [["model", "version"], [*SPELT.split(), "1"], ["größer,", "大", "2"]]


def test_an_error_has_its_lines_and_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("two lines:\n\x1b[2J")
    assert capsys.readouterr().err == "error: two lines:\n\\x1b[2J\n"


def test_a_bar_on_a_terminal_takes_nothing_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(watched(iter("abc"), 3, "letters")) == ["a", "b", "c"]
    captured = capsys.readouterr()
    assert ("letters" in captured.err, captured.out) == (sys.stderr.isatty(), "")
