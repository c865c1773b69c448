"""pydantic's errors in plain words, at the path that the user wrote."""

import difflib
import json
import re
from collections.abc import Sequence

from pydantic_core import ErrorDetails

from understudy.recipe.key_path import KeyPath, find
from understudy.recipe.models import FACTORY, MODEL_KEYS
from understudy.recipe.schema import NAME, QUANTITY, Recipe

EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a section (key: value)",
    "model_type": "a section (key: value)",
    "model_attributes_type": "a section (key: value)",
    "tuple_type": "a list",
}
PATTERNS = {
    NAME: "2 to 40 lower-case letters, digits and dashes, a letter first and no dash last",
    FACTORY: "package.module:function",
    QUANTITY: "a quantity as Kubernetes writes it, such as 500m or 16Gi",
}
BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
REPLACE = "give the whole section with one of type, pretrained and factory, as in --set teacher.model={pretrained: ...}"
RENAMED = {
    "accumulate": "gradient_accumulation_steps",
    "clip_norm": "max_grad_norm",
    "failures": "max_restarts",
    "grace": "termination_grace_period",
    "hang": "hang_timeout",
}
"""Keys of version 0.1 that were renamed."""
ELSEWHERE = {
    "lr": "optimizer.learning_rate",
    "learning_rate": "optimizer.learning_rate",
    "weight_decay": "optimizer.weight_decay",
    "warmup": "schedule.warmup",
}
"""Keys that users expect beside their section."""


def explanations(errors: Sequence[ErrorDetails]) -> list[tuple[KeyPath, str]]:
    """The path of each error, and the fix; one error for all types that a value may have."""
    explained: list[tuple[KeyPath, str]] = []
    for error in errors:
        path, text = explain(error)
        got = f", got {shown(error['input'])}"
        previous = explained[-1][1] if explained and explained[-1][0] == path else ""
        if all(message.startswith("expected ") and got in message for message in (previous, text)):
            (first, _, hint), (second, _, other_hint) = previous.partition(got), text.partition(got)
            explained[-1] = path, f"{first} or {second.removeprefix('expected ')}{got}{hint}{other_hint}"
        else:
            explained.append((path, text))
    return explained


def explain(error: ErrorDetails) -> tuple[KeyPath, str]:
    """The path of an error, as the user writes it, and the fix."""
    location, context = find(Recipe, error["loc"]), error.get("ctx", {})
    match error["type"]:
        case "union_tag_not_found":
            words = f"required, but missing; one of {', '.join(location.members)}"
            return (*location.path, _unquoted(context["discriminator"])), words
        case "union_tag_invalid":
            words = _choice(context["expected_tags"], context["tag"])
            return (*location.path, _unquoted(context["discriminator"])), words
        case "extra_forbidden":
            key = str(location.path[-1])
            kinds = [kind for kind in MODEL_KEYS.values() if kind in location.allowed_keys]
            if location.path[-2:-1] == ("model",) and key in MODEL_KEYS.values() and kinds:
                return location.path, f"the model has {kinds[0]} already; {REPLACE}"
            return location.path, _unknown(key, location.allowed_keys)
        case _:
            return location.path, reason(error)


def reason(error: ErrorDetails) -> str:
    """The problem with a value."""
    context, got = error.get("ctx", {}), f"got {shown(error['input'])}"
    match error["type"]:
        case "missing":
            return "required, but missing"
        case "extra_forbidden":
            return "unknown key"
        case "literal_error":
            return _choice(context["expected"], error["input"])
        case "string_pattern_mismatch":
            pattern = context["pattern"]
            return f"expected {PATTERNS.get(pattern, f'text that fits {pattern}')}, {got}"
        case "too_short":
            return f"expected a list of {context['min_length']} or more, {got}"
        case "string_too_short":
            return f"expected text of {context['min_length']} or more characters, {got}"
        case "value_error" | "model_kind":
            return str(context.get("error", error["msg"]))
        case kind if kind in EXPECTED:
            return f"expected {EXPECTED[kind]}, {got}"
        case kind if kind in BOUNDS:
            words, key = BOUNDS[kind]
            return f"must be {words} {_number(context[key])}, {got}"
        case _:
            return f"{error['msg'][:1].lower()}{error['msg'][1:]}, {got}"


def _number(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"


def shown(value: object) -> str:
    """A value as JSON, cut after 60 characters."""
    if value is None:
        return "nothing (null)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _unknown(key: str, allowed: Sequence[str]) -> str:
    if RENAMED.get(key) in allowed:
        return f"unknown key; it is called {RENAMED[key]} now"
    if (suggestion := ELSEWHERE.get(key, "")).partition(".")[0] in allowed:
        return f"unknown key; did you mean {suggestion}?"
    if near := difflib.get_close_matches(key, allowed, n=1):
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; known here: {', '.join(allowed)}"


def _choice(expected: str, value: object) -> str:
    near = difflib.get_close_matches(str(value), re.findall(r"'([^']+)'", expected), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"expected {_unquoted(expected)}, got {shown(value)}{hint}"


def _unquoted(words: str) -> str:
    return words.replace("'", "")
