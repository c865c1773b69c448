"""Attention heads, which stay whole when a model is split."""

from typing import Any

from understudy.errors import InputError

HEADS = ("num_attention_heads", "num_key_value_heads")
"""Settings of their numbers in transformers."""


def check_heads(config: Any, parts: int, degrees: str, path: str) -> None:
    """Refuse a model whose heads do not divide evenly over processes.

    Args:
        config: a transformers configuration; any object for other models.
        parts: number of processes.
        degrees: names of the degrees, for errors.
        path: the training's path in the recipe, for errors.

    Raises:
        InputError: a number of heads is not a multiple of `parts`.
    """
    for name in HEADS:
        heads = getattr(config, name, None)
        if isinstance(heads, int) and heads % parts:
            raise InputError(
                f"{path}.strategy: {name} is {heads} and cannot be divided over {parts} processes ({degrees}); "
                f"take a {degrees} that divides it"
            )
