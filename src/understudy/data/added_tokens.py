"""Added tokens of a tokenizer in texts: where they are, and how they separate the tokens before and after them.

A tokenizer finds added tokens in a text first, and encodes the parts between them one by one. So the tokens from an
added token on are those of the text from it on, whatever comes before it.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

BEGINNING = 6
"""Characters of a token's text that are looked for at first: a vocabulary may have thousands of added tokens."""
TAIL = 256
"""Maximum characters of a text whose tokens are remembered: the template's words between turns repeat."""

LONGEST = 256
"""Maximum characters of a delimiter."""

Boundary = tuple[int, int]
"""The character of a text and the token of its encoding at which a delimiter begins."""


class TokenTexts:
    """Texts of tokens, to be found in other texts; those of white space alone are left out."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = sorted(text for text in texts if text.strip())
        self._longest_first = sorted(self.texts, key=len, reverse=True)
        self._beginnings = _any_of(text[:BEGINNING] for text in self.texts)

    def first(self, text: str, start: int = 0) -> tuple[int, str] | None:
        """The place and the text of the first token in text[start:], the longest there; None without one."""
        while match := self._beginnings.search(text, start):
            start = match.start()
            if token := next((token for token in self._longest_first if text.startswith(token, start)), None):
                return start, token
            start += 1
        return None


class Delimiters:
    """The added tokens of a tokenizer that are a token wherever their text occurs.

    They are looked for before normalisation, whatever is beside them (no `single_word`), and no other such token has
    their text, or ends with a beginning of it, and so is found in their place.

    After one, the tokenizer's search goes on as if the text began with it. What it does between added tokens depends on
    the part there, and on whether that is the first of the text (`prepend_scheme: first`). So the tokens of a text from
    a delimiter on are those of text[delimiter:], which begins with the delimiter and has no such part before it. And
    the tokens before are the same in all texts that are the same up to the end of the delimiter.

    Args:
        tokenizer: a tokenizers.Tokenizer that recognises special tokens, and neither cuts nor pads.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = {id_: token for id_, token in tokenizer.get_added_tokens_decoder().items() if not token.normalized}
        self._added = {id_: token.content for id_, token in added.items()}
        self._words = {id_ for id_, token in added.items() if token.single_word}
        self._joined = "\0".join([*self._added.values(), ""])
        self._is_delimiter = lru_cache(maxsize=None)(self._is_taken_wherever_it_occurs)
        self._any_of = lru_cache(maxsize=64)(_any_of)
        self._remembered = lru_cache(maxsize=1024)(self._encoded)

    def boundaries(self, text: str, ids: Sequence[int]) -> list[Boundary]:
        """The delimiters of an encoded text, in their order; empty if a token has the id of one by another way.

        Every delimiter in a text is one token. Another token has its id if the model's vocabulary has it, too, or if a
        postprocessor writes it: then the ids are not those of the delimiters in the text, since there are more.
        """
        added = self._added
        tokens = [token for token, id_ in enumerate(ids) if id_ in added and self._is_delimiter(id_)]
        expected = [added[ids[token]] for token in tokens]
        matches = [*self._any_of(frozenset(expected)).finditer(text)]
        if [match[0] for match in matches] != expected:
            return []
        return [(match.start(), token) for match, token in zip(matches, tokens, strict=True)]

    def tokens_before(self, stop: int, text: str, ids: Sequence[int], boundaries: Sequence[Boundary]) -> int | None:
        """The number of tokens of text[:stop]; None if they are not the first tokens of the text.

        Up to the last delimiter before `stop` the tokens of text[:stop] are those of the text, because both go on with
        this delimiter. So only the tokens from it on are compared; all of them if there is none.

        Args:
            stop: in characters.
            text: a text.
            ids: its tokens.
            boundaries: from boundaries().
        """
        before = [(start, token) for start, token in boundaries if start + len(self._added[ids[token]]) <= stop]
        start, first = before[-1] if before else (0, 0)
        tail = text[start:stop]
        expected = self._remembered(tail) if len(tail) <= TAIL else self._encoded(tail)
        last = first + len(expected)
        return last if list(ids[first:last]) == expected else None

    def _is_taken_wherever_it_occurs(self, id_: int) -> bool:
        text = self._added[id_]
        return (
            id_ not in self._words
            and len(text) <= LONGEST
            and self._joined.count(text) == 1
            and not any(f"{text[:stop]}\0" in self._joined for stop in range(1, len(text)))
        )

    def _encoded(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Matches any of some texts, and nothing if there are none."""
    return re.compile("|".join(map(re.escape, sorted(texts))) or r"(?!)")
