"""Wear of a test split: after enough candidates one passes by chance.

The gate's error rate is for one student: at a true loss of exactly the margin it passes with a probability p of
(1 - confidence) / 2. Of k such students at least one passes with 1 - (1 - p)^k, if they are independent; that is 22 %
for ten of them at 95 %. Picking the one that passed has this error rate, not 2.5 %.

There is a warning, and the rules are unchanged. A correction (Bonferroni's, or a ladder: Blum & Hardt 2015) would
make a verdict depend on the history of one store: the same student would pass in one and fail in another.
"""

from collections.abc import Iterator

MANY = 10


def judged_so_far(judged: int) -> str:
    """The candidate's number, in a sentence."""
    if not judged:
        return ""
    if judged == 1:
        return "It is the first one that this store has judged on this test split for this registered model."
    return f"It is number {judged} of those that this store has judged on this test split for this registered model."


def worn(judged: int, confidence: float) -> Iterator[str]:
    """A warning from the tenth candidate on."""
    if judged < MANY:
        return
    chance = 1 - (1 - (1 - confidence) / 2) ** judged
    yield (
        f"This test split wears out: {judged} candidates were judged on it. If all of them lost exactly the margin, "
        f"one or more would pass by chance in {100 * chance:.0f} % of the cases, and not in "
        f"{100 * (1 - confidence) / 2:g} %. Judge on test data that no candidate has seen, or raise gate.confidence."
    )
