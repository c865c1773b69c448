"""A check that a test set is large enough for the gate: if a perfect student would fail, training is pointless.

These are bounds, not advice: a test set within them may still be too small for the actual student.
"""

import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist

from understudy.evaluate.intervals import least_examples, least_score, smallest_detectable
from understudy.recipe import Gate, MetricName
from understudy.recipe.tasks import RecipeTask

DIFFERING = 0.05
"""Assumed share of answers in which a student as good as its teacher differs from it; measured: 3 % on the digits."""

Shortfall = tuple[tuple[str, ...], str]
"""The key of the recipe that demands too much, and the remedy."""


def shortfalls(
    task: RecipeTask, metric: MetricName, gate: Gate, examples: int, records: int | None = None
) -> Iterator[Shortfall]:
    """The gate's requirements that no student can meet with this number of test examples.

    Args:
        task: the recipe's.
        metric: the gate's.
        gate: the recipe's section.
        examples: the number of test examples, or an upper bound of it.
        records: the number of all records, if it is known: a larger share of too few does not help.
    """
    if metric == "accuracy" and gate.minimum is not None and gate.minimum >= 1:
        yield ("gate", "minimum"), "no test set can show that every answer would be right; ask for less, such as 0.99"
    elif metric != "accuracy" and gate.minimum == 0:
        yield ("gate", "minimum"), f"no model reaches 0 by {metric}; ask for more"
    if task.LABELLED and metric == "accuracy":
        yield from _accuracy_shortfalls(gate, examples, records, task.NOUN)
        return
    least = least_examples(gate.confidence)
    if examples < least:
        remedy = _it_takes(least, records, "or compare another metric (gate.metric)")
        yield ("data", "test"), f"{_counted(examples, records, 'example')} are too few to tell by {metric}: {remedy}"


def least_answers(loss: float, confidence: float) -> int:
    """The number of right or wrong answers needed to rule out a loss if none of them shows any.

    Wilson's and Tango's intervals then both end z^2 / (n + z^2) from the observed value.
    """
    square = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    return math.ceil(square * (1 - loss) / loss)


def detectable_loss(examples: int, confidence: float) -> float:
    """The smallest margin of accuracy that so many test images can show, before there are any answers of a student.

    A student passes that answers all of them as its teacher does; and, in about 80 % of test sets, one that is as
    good and differs in DIFFERING of its answers. At a confidence of 95 % it is 0.038 for 360 images, 0.02 for 1,165.
    """
    # Tango's variance grows with the difference to be ruled out, which adds z^2 / 2n to Wald's interval.
    standard_error, least = math.sqrt(DIFFERING / examples), least_score(examples, confidence)
    return max(least, smallest_detectable(standard_error, confidence) + least / 2)


def indistinct(other_labels: int, examples: int, confidence: float, noun: str) -> str:
    """The reason why a perfect student cannot be told from a predictor of the most frequent label; empty if it can.

    Args:
        other_labels: test examples whose label is not the most frequent one in training.
        examples: all test examples.
        confidence: the gate's.
        noun: an example in words.
    """
    # Tango's interval excludes 0 if the score test at 0 rejects, which is McNemar's: wins > z^2 without a loss.
    least = math.floor(NormalDist().inv_cdf((1 + confidence) / 2) ** 2) + 1
    if other_labels >= least:
        return ""
    requirement = f"it takes {least} or more of {examples}" if least <= examples else f"it takes more test {noun}s"
    return (
        f"{other_labels} of {examples} test {noun}s have another label than the most frequent one in training: even a "
        f"student that is always right could not be told from a predictor that always gives that one; {requirement}"
    )


def too_rare(counts: Mapping[str, int], confidence: float, noun: str) -> str:
    """The reason why the rarest label has too few examples for a metric that it may decide alone; empty if not.

    Args:
        counts: the number of test examples by label.
        confidence: the gate's.
        noun: an example in words.
    """
    label, count = min(counts.items(), key=lambda entry: entry[1])
    least = least_examples(confidence)
    if count >= least:
        return ""
    return (
        f"{count} test {noun}s have the label {label}, and a metric that this label may decide alone takes {least} or "
        "more of each. Give more test data, or let the gate compare accuracy or nll."
    )


def _accuracy_shortfalls(gate: Gate, examples: int, records: int | None, noun: str) -> Iterator[Shortfall]:
    """The shortfalls for accuracy, where each example is right or wrong."""
    subject = _counted(examples, records, noun)
    level = f"at a confidence of {100 * gate.confidence:g} %"
    if gate.margin > 0 and examples < (least := least_answers(gate.margin, gate.confidence)):
        loss = f"a loss of more than {100 * gate.margin:g} points"
        reason = f"{subject} cannot rule out {loss} {level}, not even for a student that answers all of them as the "
        yield ("gate", "margin"), f"{reason}teacher does: {_it_takes(least, records, 'or a larger gate.margin')}"
    if gate.minimum is None or gate.minimum >= 1:
        return
    least = max(least_answers(1 - gate.minimum, gate.confidence), least_examples(gate.confidence))
    if examples < least:
        reason = f"{subject} cannot show an accuracy of {100 * gate.minimum:g} % {level}, not even for a student that "
        yield ("gate", "minimum"), f"{reason}is always right: {_it_takes(least, records, 'or a lower gate.minimum')}"


def _counted(examples: int, records: int | None, noun: str) -> str:
    return f"{examples} test {noun}s" if examples != records else f"all {examples} {noun}s of the source together"


def _it_takes(least: int, records: int | None, alternative: str) -> str:
    if records is not None and records < least:
        return f"it takes {least:,} or more, and the source has {records:,} records. Give more data, {alternative}."
    return (
        f"it takes {least:,} or more. Give more test data (a larger data.test, unless the source has its own test "
        "split), or ask for less."
    )
