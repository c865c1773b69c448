"""Confusables of the alias champion: one letter off, two neighbours swapped, or letters that look like others."""

import re

from understudy.registry.names import CHAMPION

GLYPHS = str.maketrans({"0": "o", "1": "i", "l": "i", "4": "a", "_": None, "-": None})
GLYPH_SEQUENCES = (("d", "ci"), ("ii", "h"), ("rn", "m"))
"""Letters that together look like one: cl like d, li like h, rn like m. An l is already an i here."""


def confusable_with_champion(alias: str) -> str:
    """Why an alias could be mistaken for champion; empty if it could not."""
    if not re.fullmatch("[A-Za-z0-9_-]*", alias):
        return f"the alias {alias!r} has other characters than ASCII's letters and digits; some look like others"
    if alias.lower() != CHAMPION and _nearly_equal(_folded(alias), _folded(CHAMPION)):
        return f"the alias {alias!r} looks like {CHAMPION}"
    return ""


def _folded(alias: str) -> str:
    """An alias in letters that do not look alike."""
    folded = alias.lower().translate(GLYPHS)
    for letters, same in GLYPH_SEQUENCES:
        folded = folded.replace(letters, same)
    return folded


def _nearly_equal(first_alias: str, second_alias: str) -> bool:
    """Whether at most one letter is replaced, missing or added, or two neighbours are swapped."""
    short, long = sorted((first_alias, second_alias), key=len)
    if len(long) - len(short) > 1:
        return False
    first = next((index for index, letter in enumerate(short) if letter != long[index]), len(short))
    if short[first:] == long[first + 1 :] or short[first + 1 :] == long[first + 1 :]:
        return True
    return short[:first] + short[first : first + 2][::-1] + short[first + 2 :] == long
