"""The audit's chain: a line of JSON for each change, which holds the digest of the line before it.

Whoever changes or removes a line has to make all later ones anew, and their digests are other ones then. So the last
digest, kept elsewhere (the server's log has every line), shows any change of what came before it.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from understudy.errors import InputError, UnderstudyError
from understudy.registry import rest
from understudy.registry.server import public_uri

ENDPOINT = "understudy/audit"
PATH = f"/api/2.0/mlflow/{ENDPOINT}"
PAGE = 500  # lines in an answer, at most
PAGE_LENGTH = 4 * 2**20  # characters after which an answer has no further line
FIRST = "0" * 64  # what the first line has as the digest of the one before


def lines_of(uri: str) -> Iterator[str]:
    """A server's audit from its first line on, for an admin.

    Raises:
        InputError: this is no server.
        UnderstudyError: the server has no audit, or refuses it to this account.
    """
    if not uri.startswith(("http://", "https://")):
        raise InputError(f"{public_uri(uri)}: a database has no audit, only a server has; name one with --tracking-uri")
    number = 0
    while page := rest.get(uri, ENDPOINT, after=str(number))["lines"]:
        yield from page
        number += len(page)


class Audit(NamedTuple):
    """An audit that was read whole and found unbroken."""

    lines: int
    last: str
    """The last line's digest."""


def sealed(entry: dict[str, Any], number: int, previous: str) -> str:
    """An entry as the audit's line of that number: JSON with its keys in order, its digest last."""
    content = {**entry, "number": number, "previous": previous}
    return json.dumps({**content, "digest": _digest(content)})  # in ASCII: no letter of a name ends the line


def digest_of(line: str) -> str:
    """The digest that a line has of itself."""
    return str(json.loads(line)["digest"])


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def verify(lines: Iterable[str], last: str = "") -> Audit:
    """Read an audit from its first line on.

    Args:
        lines: JSON, one entry each.
        last: a digest noted earlier. The line that has it must be there still: lines removed from the end leave no
            other trace.

    Raises:
        UnderstudyError: a line was changed, removed, added or moved.
    """
    number, previous, seen = 0, FIRST, not last
    for number, line in enumerate(lines, 1):
        previous = _checked(line, number, previous)
        seen = seen or previous == last
    if not seen:
        raise UnderstudyError(f"audit: no line has the digest {last}; lines were removed from the end, or made anew")
    return Audit(number, previous)


def _checked(line: str, number: int, previous: str) -> str:
    """The digest of a line that is what it should be."""
    try:
        content = json.loads(line)
        written = json.dumps(content)
        digest = content.pop("digest")
        said = content["number"], content["previous"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnderstudyError(f"audit, line {number}: this is no entry of an audit") from error
    # The digest is of what JSON makes of a line: another reader of a line with a key twice takes the other value.
    if line != written:
        raise UnderstudyError(f"audit, line {number}: it was changed; the server writes the same content otherwise")
    if digest != _digest(content):
        raise UnderstudyError(f"audit, line {number}: it was changed; its digest is that of another content")
    if said[0] != number:
        raise UnderstudyError(f"audit, line {number}: it is entry {said[0]}; entries were removed, added or moved")
    if said[1] != previous:
        raise UnderstudyError(f"audit, line {number}: it followed another entry; the one before was made anew")
    return str(digest)
