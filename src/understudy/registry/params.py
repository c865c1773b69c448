"""Nested values as parameters of an MLflow run, by their path in the recipe."""

import json
from collections.abc import Mapping

from understudy.registry.server import public_uri
from understudy.registry.tracking import TrackingServer

LONGEST_KEY, LONGEST_VALUE = 250, 6000  # MLflow's limits


def log_params(server: TrackingServer, run_id: str, values: Mapping[str, object]) -> None:
    """Log nested values as parameters a.b.c, cut to MLflow's limits."""
    server.set_params(run_id, {key[:LONGEST_KEY]: _cut(value) for key, value in flat(values).items()})


def _cut(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Nested values by their path, in the syntax of overrides; addresses lose their credentials.

    Sections in a list are named by their type; other lists stay whole, as JSON.
    """
    by_path: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            by_path |= flat(value, f"{prefix}{key}.")
        elif by_type := _by_type(value):
            by_path |= flat(by_type, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            by_path[f"{prefix}{key}"] = public_uri(text) if "://" in text else text
    return by_path


def _by_type(value: object) -> dict[str, Mapping[str, object]]:
    """A list of sections by type; empty for any other value, or if two have the same type."""
    if not isinstance(value, list):
        return {}
    sections = [entry for entry in value if isinstance(entry, Mapping)]
    by_type = {entry["type"]: entry for entry in sections if "type" in entry}
    return by_type if len(by_type) == len(value) else {}
