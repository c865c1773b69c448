"""The JSON objects of a file: one on each line, or the items of an array; plain, or compressed by gzip or zstd.

Lines are read one at a time. An array is read whole, because its items may have any layout.
"""

import io
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from understudy.data.raw import Broken
from understudy.data.sources.columns import kind_of
from understudy.errors import InputError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
LINE_BYTES = 2**28
"""The longest line: a compressed file of a megabyte may hold one that does not fit into memory."""
ARRAY_BYTES = 2**30
"""The largest array, after decompression."""
SPREAD = "ends within an object: write each object on one line, as `jq -c .` does"
"""The reason of a line that begins an object and does not end it."""
ARRAY = "a file that is one array of objects has the ending .json"
UNUSUAL = re.compile(r"\\u(?:0000|[dD][89a-fA-F])|[\ud800-\udfff]")
"""Matches JSON in which a string may have a character that is not text; an escaped pair of surrogates, too."""
NOT_TEXT = re.compile("[\0\ud800-\udfff]")
SPACE = re.compile(r"[ \t\n\r]*")


class Item(NamedTuple):
    """An object as it is in the file."""

    name: str
    """file:line, counted from 1; of an array file#item, counted from 0."""
    row: Mapping[str, Any]


def items(name: str, path: Path) -> Iterator[Item | Broken]:
    """The objects of a file, in their order. Blank lines and a byte order mark at its start are no content.

    Raises:
        InputError: it is an array of more than ARRAY_BYTES.
    """
    try:
        with _open(path) as file:
            yield from _of_array(name, file) if _is_array(path, file) else _of_lines(name, file)
    except OSError as error:
        yield Broken(name, _unreadable(error))


def count(name: str, path: Path) -> int:
    """The number of objects, the damaged ones among them; those before damage that ends the file.

    Raises:
        InputError: as in items().
    """
    total = 0
    with suppress(OSError), _open(path) as file:  # items() reports it
        if _is_array(path, file):
            return sum(1 for _ in _of_array(name, file))
        while line := file.readline(LINE_BYTES):
            total += bool(line.strip())
    return total


def _open(path: Path) -> io.BufferedReader:
    compression = COMPRESSIONS.get(path.suffix.lower())
    if compression is None:
        return path.open("rb")
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression=compression))


def _is_array(path: Path, file: io.BufferedReader) -> bool:
    """Whether a .json file is one array; nothing of it is consumed."""
    suffixes = [suffix for suffix in path.suffixes if suffix.lower() not in COMPRESSIONS]
    if not suffixes or suffixes[-1].lower() != ".json":
        return False
    return file.peek().removeprefix(BOM_UTF8).lstrip().startswith(b"[")


def _unreadable(error: OSError) -> str:
    return f"cannot be read ({error.strerror or str(error).partition(chr(10))[0]})"


def _of_lines(name: str, file: io.BufferedReader) -> Iterator[Item | Broken]:
    decoder, number = _Decoder(), 0
    try:
        while line := file.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES:
                yield Broken(f"{name}:{number}", f"is longer than {LINE_BYTES // 2**20} MiB")
                while line and not line.endswith(b"\n"):
                    line = file.readline(LINE_BYTES)
                continue
            line = line.removeprefix(BOM_UTF8) if number == 1 else line
            if line.strip():
                yield _of_line(f"{name}:{number}", line, decoder)
    except OSError as error:  # a compressed file that ends too early, or has other bytes
        yield Broken(f"{name}:{number + 1}", _unreadable(error))


def _of_line(name: str, line: bytes, decoder: "_Decoder") -> Item | Broken:
    try:
        text = line.decode().strip(" \t\n\r")
    except UnicodeDecodeError as error:
        return Broken(name, f"is not UTF-8 text (byte {error.start})")
    if (zero := line.find(0)) >= 0:
        return Broken(name, f"is not UTF-8 text (byte {zero} is zero, as in UTF-16 and in binary files)")
    try:
        item, end = decoder.item(name, text, 0)
        if end != len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except json.JSONDecodeError as error:
        if text.startswith("{") and error.pos >= len(text):
            return Broken(name, SPREAD)
        if text.startswith("["):
            return Broken(name, f"begins an array, not an object: {ARRAY}")
        return Broken(name, f"is not JSON (column {error.colno}: {error.msg})")
    except _UnreadableError as error:
        return Broken(name, str(error))
    return item


def _of_array(name: str, file: io.BufferedReader) -> Iterator[Item | Broken]:
    content = file.read(ARRAY_BYTES + 1)
    if len(content) > ARRAY_BYTES:
        raise InputError(
            f"data.source.path: {name} is one array of more than {ARRAY_BYTES // 2**30} GiB, which would have to be in "
            "memory at once. Write each object on a line of its own, as `jq -c '.[]'` does, into a .jsonl file."
        )
    text = content.removeprefix(BOM_UTF8).decode(errors="surrogateescape")  # the check of an item finds surrogates
    del content
    decoder, number, start = _Decoder(), 0, _skip(text, text.index("[") + 1)
    try:
        while not (number == 0 and text.startswith("]", start)):
            item, end = decoder.item(f"{name}#{number}", text, start)
            yield item
            number, end = number + 1, _skip(text, end)
            if text.startswith("]", end):
                start = end
                break
            if not text.startswith(",", end):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, end)
            start = _skip(text, end + 1)
        if (end := _skip(text, start + 1)) != len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except json.JSONDecodeError as error:
        reason = f"is not JSON (column {error.colno}: {error.msg}), and the rest of the file cannot be read"
        yield Broken(f"{name}:{error.lineno}", reason)
    except _UnreadableError as error:
        yield Broken(f"{name}#{number}", f"{error}, and the rest of the file cannot be read")


def _skip(text: str, start: int) -> int:
    """The place after white space."""
    match = SPACE.match(text, start)
    assert match is not None
    return match.end()


class _UnreadableError(Exception):
    """A value that is JSON, and that Python's decoder cannot read."""


class _Decoder:
    """Reads values, and notes what JSON leaves open or forbids: keys given twice, and numbers that are none."""

    def __init__(self) -> None:
        self._decoder = json.JSONDecoder(object_pairs_hook=self._object, parse_constant=self._constant)
        self._faults = list[str]()

    def item(self, name: str, text: str, start: int) -> tuple[Item | Broken, int]:
        """The object that begins there, and the place of its end.

        Raises:
            JSONDecodeError: it is not JSON.
            _UnreadableError: it is nested too deeply, or has too long a number.
        """
        self._faults.clear()
        try:
            value, end = self._decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            raise
        except RecursionError as error:
            raise _UnreadableError("is nested too deeply") from error
        except ValueError as error:  # int() refuses more than 4300 digits
            raise _UnreadableError("has a number with too many digits") from error
        if UNUSUAL.search(text, start, end):
            self._faults.extend(_characters(value))
        if self._faults:
            return Broken(name, self._faults[0]), end
        return (Item(name, value) if isinstance(value, dict) else Broken(name, _no_object(value))), end

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) != len(pairs):
            keys = [key for key, _ in pairs]
            self._faults.append(f"has the key {next(key for key in keys if keys.count(key) > 1)!a} twice")
        return row

    def _constant(self, name: str) -> None:
        self._faults.append(f"has {name}, which is not JSON")


def _characters(value: Any) -> Iterator[str]:
    """The faults of a value's strings."""
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, str) and (match := NOT_TEXT.search(value)):
            code = ord(match[0])
            what = "half of a surrogate pair, or a byte that is not UTF-8" if code else "the character zero"
            yield f"has a string with {what} (U+{code:04X})"
        elif isinstance(value, dict):
            values.extend((*value.keys(), *value.values()))
        elif isinstance(value, list):
            values.extend(value)


def _no_object(value: Any) -> str:
    return f"is {kind_of(value)}, not an object" + (f": {ARRAY}" if isinstance(value, list) else "")
