"""A test split wears out: who looks at it often enough finds a student that passes by chance.

The gate's promise is about one student: at a true loss of exactly the margin it passes with a probability of
(1 - confidence) / 2. Of k such students at least one passes with 1 - (1 - p)^k, were they independent; that is 22 % for
ten of them at 95 %. Whoever picks the one that passed has a promise of that size, and not of 2.5 %.

It is told, and the rules are left as they are. A correction (Bonferroni's, or a ladder: Blum & Hardt 2015) would make a
verdict follow from the history of one store: the same student would pass in one and fail in another.
"""

from collections.abc import Iterator

MANY = 10


def judged_so_far(judged: int) -> str:
    """Which one this is, in a sentence."""
    if not judged:
        return ""
    if judged == 1:
        return "It is the first one that this store has judged on this test split for this registered model."
    return f"It is number {judged} of those that this store has judged on this test split for this registered model."


def worn(judged: int, confidence: float) -> Iterator[str]:
    """A warning from the tenth one on."""
    if judged < MANY:
        return
    chance = 1 - (1 - (1 - confidence) / 2) ** judged
    yield (
        f"This test split wears out: {judged} candidates were judged on it. If all of them lost exactly the margin, "
        f"one or more would pass by chance in {100 * chance:.0f} % of the cases, and not in "
        f"{100 * (1 - confidence) / 2:g} %. Judge on test data that no candidate has seen, or raise gate.confidence."
    )
