import pytest

from understudy.evaluate.rejections import rejected_before

NOW = {"margin": 0.08, "confidence": 0.95, "minimum": None}


@pytest.mark.parametrize(
    ("earlier", "differences"),
    [
        ([{**NOW, "margin": 0.05}], "margin 0.05 (now 0.08)"),
        ([{**NOW, "margin": 0.05}, {**NOW, "minimum": 0.9}], "margin 0.05 (now 0.08); minimum 0.9 (now none)"),
        ([{**NOW, "margin": 0.05, "confidence": 0.99}], "margin 0.05 (now 0.08), confidence 0.99 (now 0.95)"),
    ],
)
def test_the_rules_that_differ_are_named_with_both_values(earlier, differences):
    sentence = rejected_before("student", earlier, NOW)
    assert sentence == f"This student was rejected before under other rules of the gate: {differences}."


@pytest.mark.parametrize("earlier", [[], [NOW], [{"margin": 0.08}], [{**NOW, "of another version": 1}]])
def test_there_is_no_caution_without_a_difference(earlier):
    assert rejected_before("student", earlier, NOW) == ""
