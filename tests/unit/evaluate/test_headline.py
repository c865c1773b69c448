import pytest

from understudy.evaluate.headline import headline
from understudy.evaluate.quality import Rule

GOOD, BAD = Rule("size", passed=True, detail=""), Rule("latency", passed=False, detail="")


@pytest.mark.parametrize(
    ("metric", "margin", "margins"),
    [
        ("bits_per_byte", 0.6, "within 60 % of its teacher by bits per byte"),
        ("accuracy", 0.025, "within 2.5 points of its teacher by accuracy"),
        ("nll", 0.02, "within 2 % of its teacher by negative log-likelihood"),
    ],
)
def test_approved_never_stands_without_the_margin(metric, margin, margins):
    alone = headline([GOOD], metric, margin, "student", compared=False)
    assert alone == f"approved: {margins}; not compared with what you serve: no version has the alias champion"
    assert headline([GOOD], metric, margin, "student", compared=True) == (
        f"approved: {margins.replace('its teacher', 'its teacher and of the champion')}"
    )


def test_a_rejection_names_its_rules():
    text = headline([GOOD, BAD], "accuracy", 0.02, "student", compared=True)
    assert text == "rejected by latency"


def test_a_champion_that_could_not_be_measured_is_no_missing_one():
    problem = Rule("quality-against-champion", passed=False, detail="")
    text = headline([problem], "accuracy", 0.02, "control", compared=False)
    assert text == "control, trained without the teacher: rejected by quality-against-champion"


def test_a_latency_that_is_not_reliable_is_called_so_if_a_rule_compares_it():
    text = headline([GOOD, BAD], "accuracy", 0.02, "student", compared=True, is_latency_reliable=False)
    assert text == "rejected by latency; latency not reliable: it varies too much"
    text = headline([GOOD], "accuracy", 0.02, "student", compared=True, is_latency_reliable=False)
    assert "latency" not in text
