"""A caution about a model that the gate rejected before: its rules may have been loosened until it passed."""

from collections.abc import Mapping, Sequence
from typing import Any


def rejected_before(candidate: str, earlier: Sequence[Mapping[str, Any]], rules: Mapping[str, Any]) -> str:
    """A sentence with the rules that differ; empty if there are none.

    Args:
        candidate: the role of the judged model.
        earlier: the rules by which it was rejected, as keys of the recipe's section `gate`.
        rules: those of now.
    """
    differences = [text for rejecting in earlier if (text := _difference(rejecting, rules))]
    if not differences:
        return ""
    return f"This {candidate} was rejected before under other rules of the gate: {'; '.join(differences)}."


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The rules that both have, an older understudy and this one, and that differ."""
    changed = [name for name in before if name in now and before[name] != now[name]]
    return ", ".join(f"{name} {_shown(before[name])} (now {_shown(now[name])})" for name in changed)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
