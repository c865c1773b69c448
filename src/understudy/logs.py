"""Logging of a process, for operators: one named logger per module, as text or JSON (UNDERSTUDY_LOG=json).

A text record is one line: time in UTC, level, logger, message. A JSON record is one object with the same four fields
and, if there is one, a traceback.
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
    """Records such as 2026-01-31T12:00:00.123Z INFO understudy.agent.heartbeat: training."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


class JsonFormatter(TextFormatter):
    """One object per record, on one line: time, level, logger, message, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure(level: int = logging.INFO) -> None:
    """Log to stderr: the package's records from `level` up, and the libraries' from WARNING up.

    It replaces other plain stream handlers: KFP's executor has one, and every line would appear twice.

    Raises:
        InputError: UNDERSTUDY_LOG is not a known format.
    """
    log_format = os.environ.get(VARIABLE) or "text"
    if log_format not in FORMATS:
        raise InputError(f"{VARIABLE}: {log_format!r} is not a log format; take {' or '.join(FORMATS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    for earlier in [
        old for old in root.handlers if isinstance(old.formatter, TextFormatter) or type(old) is logging.StreamHandler
    ]:
        root.removeHandler(earlier)
        earlier.close()
    handler.addFilter(_ours_or_a_warning)  # a library may set its own level, as uvicorn does
    root.addHandler(handler)
    logging.getLogger("understudy").setLevel(level)


def _ours_or_a_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == "understudy"


class _Copy(logging.FileHandler):
    """A log file beside stderr. If it cannot be written, stderr still has every line, and the process continues."""

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line. Opening the file is the only part that logging itself does not guard."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore the error: on a full volume the line on stderr is enough."""


def copy_to(path: Path) -> None:
    """Also append this process's log to a file, created with the first line. Call configure() first."""
    root = logging.getLogger()
    formatter = next(old.formatter for old in root.handlers if isinstance(old.formatter, TextFormatter))
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    handler = _Copy(path, encoding="utf-8", delay=True)
    handler.setFormatter(formatter)
    root.addHandler(handler)
