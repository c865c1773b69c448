"""The audit log as a hash chain: one line of JSON per change, with the digest of the previous line.

A change or removal of a line requires new versions of all later lines, with other digests. So the last digest, stored
elsewhere (the server's log has every line), reveals any change to earlier lines.
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
PAGE = 500  # maximum lines per response
PAGE_LENGTH = 4 * 2**20  # characters after which a response gets no further line
FIRST = "0" * 64  # the previous digest in the first line


def lines_of(uri: str) -> Iterator[str]:
    """The lines of a server's audit log, from the first; requires an admin account.

    Raises:
        InputError: the URI is not that of a server.
        UnderstudyError: the server has no audit log, or denies it to this account.
    """
    if not uri.startswith(("http://", "https://")):
        raise InputError(f"{public_uri(uri)}: a database has no audit, only a server has; name one with --tracking-uri")
    number = 0
    while page := rest.get(uri, ENDPOINT, after=str(number))["lines"]:
        yield from page
        number += len(page)


class Audit(NamedTuple):
    """A complete audit log with an intact chain."""

    lines: int
    last: str
    """The last line's digest."""


def sealed(entry: dict[str, Any], number: int, previous: str) -> str:
    """Line `number` of the audit log: the entry as JSON, with its digest as the last key."""
    content = {**entry, "number": number, "previous": previous}
    return json.dumps({**content, "digest": _digest(content)})  # ASCII only: no character of a name can end the line


def digest_of(line: str) -> str:
    """The digest stored in a line."""
    return str(json.loads(line)["digest"])


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def verify(lines: Iterable[str], last: str = "") -> Audit:
    """Verify an audit log from its first line.

    Args:
        lines: one JSON entry each.
        last: a digest recorded earlier. Its line must still exist: lines removed from the end leave no other trace.

    Raises:
        UnderstudyError: a line was changed, removed, added or moved.
    """
    number, previous, last_exists = 0, FIRST, not last
    for number, line in enumerate(lines, 1):
        previous = _checked(line, number, previous)
        last_exists = last_exists or previous == last
    if not last_exists:
        raise UnderstudyError(f"audit: no line has the digest {last}; lines were removed from the end, or made anew")
    return Audit(number, previous)


def _checked(line: str, number: int, previous: str) -> str:
    """Check a line against its number and its predecessor, and return its digest."""
    try:
        content = json.loads(line)
        written = json.dumps(content)
        digest = content.pop("digest")
        position = content["number"], content["previous"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnderstudyError(f"audit, line {number}: this is no entry of an audit") from error
    # The digest covers the parsed line. If a key occurs twice, another parser may use the other value.
    if line != written:
        raise UnderstudyError(f"audit, line {number}: it was changed; the server writes the same content otherwise")
    if digest != _digest(content):
        raise UnderstudyError(f"audit, line {number}: it was changed; its digest is that of another content")
    if position[0] != number:
        raise UnderstudyError(f"audit, line {number}: it is entry {position[0]}; entries were removed, added or moved")
    if position[1] != previous:
        raise UnderstudyError(f"audit, line {number}: it followed another entry; the one before was made anew")
    return str(digest)
