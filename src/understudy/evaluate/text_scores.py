"""Scores of a generated answer against a reference, from 0 to 1.

Words are compared as SQuAD's evaluation compares them (Rajpurkar et al. 2016): in lower case, without ASCII punctuation
and the articles a, an and the. Two texts without words are equal.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
WORD = re.compile(r"\w+")


def exact_match(answer: str, reference: str) -> float:
    """1 if the words are the same, in the same order, and 0 otherwise."""
    return float(_words(answer) == _words(reference))


def f1(answer: str, reference: str) -> float:
    """The harmonic mean of precision and recall of the answer's words, in any order (Rajpurkar et al. 2016)."""
    answered, expected = _words(answer), _words(reference)
    if not answered or not expected:
        return float(answered == expected)
    return _f1((Counter(answered) & Counter(expected)).total(), len(answered), len(expected))


def rouge_l(answer: str, reference: str) -> float:
    """F1 of the longest common subsequence of words (Lin 2004, section 3.1, with beta 1).

    Words are runs of letters, digits and underscores in lower case, of any language, and are not stemmed.
    """
    answered, expected = (WORD.findall(text.lower()) for text in (answer, reference))
    if not answered or not expected:
        return float(answered == expected)
    return _f1(_common(answered, expected), len(answered), len(expected))


def chrf(answer: str, reference: str) -> float:
    """F2 of n-grams of 1 to 6 characters, chrF2 (Popovic 2015), by sacrebleu."""
    from sacrebleu.metrics import CHRF

    if not answer.strip() and not reference.strip():
        return 1.0
    return float(CHRF().sentence_score(answer, [reference]).score) / 100


def _words(text: str) -> list[str]:
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def _f1(common: int, answered: int, expected: int) -> float:
    return 2 * common / (answered + expected)


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    lengths = [0] * (len(second) + 1)
    for word in first:
        diagonal = 0
        for column, other in enumerate(second, 1):
            above = lengths[column]
            lengths[column] = diagonal + 1 if word == other else max(above, lengths[column - 1])
            diagonal = above
    return lengths[-1]
