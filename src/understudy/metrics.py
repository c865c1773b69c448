"""Metrics of this process for Prometheus, on an address of their own: served only where a variable names one."""

import logging
import os

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from understudy.errors import InputError

VARIABLE = "UNDERSTUDY_METRICS"
"""HOST:PORT to listen on; unset or empty: nowhere. There are no accounts: who reaches the port reads."""
REGISTRY = CollectorRegistry()

log = logging.getLogger(__name__)
ProcessCollector(registry=REGISTRY)


def address() -> tuple[str, int] | None:
    """Where to listen; None where nobody asked for it.

    Raises:
        InputError: the variable holds no address.
    """
    said = os.environ.get(VARIABLE)
    if not said:
        return None
    host, _, port = said.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"{VARIABLE}: {said!r} is no HOST:PORT; write 127.0.0.1:9095, or leave it unset")
    return host.strip("[]"), int(port)


def serve() -> bool:
    """Serve the metrics as long as this process lives; whether somebody asked for that, and the address was free.

    Raises:
        InputError: the variable holds no address.
    """
    where = address()
    if where is None:
        return False
    try:
        start_http_server(where[1], where[0], REGISTRY)
    except OSError as error:  # two runs on one machine, say: no work is lost because nobody can count it
        log.warning("no metrics of this process: %s=%s: %s", VARIABLE, os.environ[VARIABLE], error)
        return False
    return True
