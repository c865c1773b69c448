"""The log of a process, for those who operate it: one named logger per module, text or JSON (UNDERSTUDY_LOG=json).

Text is a line each: time in UTC, level, logger, message. JSON is an object each, with the same four and a traceback.
"""

import json
import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from understudy.errors import InputError

VARIABLE = "UNDERSTUDY_LOG"
FORMATS = ("text", "json")


class TextFormatter(logging.Formatter):
    """2026-01-31T12:00:00.123Z INFO understudy.agent.heartbeat: training."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


class JsonFormatter(TextFormatter):
    """An object per record, on one line: time, level, logger, message, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        said = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def configure(level: int = logging.INFO) -> None:
    """Send this process's log to stderr: the package's from `level` on, warnings of libraries.

    It takes the place of another plain stream's handler: KFP's executor has one, and every line would come twice.

    Raises:
        InputError: UNDERSTUDY_LOG names no format.
    """
    wanted = os.environ.get(VARIABLE) or "text"
    if wanted not in FORMATS:
        raise InputError(f"{VARIABLE}: {wanted!r} is no format of the log; it takes {' or '.join(FORMATS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if wanted == "json" else TextFormatter())
    root = logging.getLogger()
    for earlier in [
        one for one in root.handlers if isinstance(one.formatter, TextFormatter) or type(one) is logging.StreamHandler
    ]:
        root.removeHandler(earlier)
        earlier.close()
    handler.addFilter(_ours_or_a_warning)  # a library may have set a level of its own: uvicorn has
    root.addHandler(handler)
    logging.getLogger("understudy").setLevel(level)


def _ours_or_a_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == "understudy"


class _Copy(logging.FileHandler):
    """A file beside stderr: where it cannot be written, stderr still has every line, and the process goes on."""

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line; opening the file is the one part of this that logging does not guard itself."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Nothing: of a full volume the line on stderr says enough."""


def copy_to(path: Path) -> None:
    """Append this process's log to a file too, once configure() was called. The file is made with the first line."""
    root = logging.getLogger()
    formatter = next(one.formatter for one in root.handlers if isinstance(one.formatter, TextFormatter))
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    handler = _Copy(path, encoding="utf-8", delay=True)
    handler.setFormatter(formatter)
    root.addHandler(handler)
