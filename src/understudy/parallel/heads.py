"""The heads of attention, which stay whole when a model is split."""

from typing import Any

from understudy.errors import InputError

HEADS = ("num_attention_heads", "num_key_value_heads")
"""What transformers calls their numbers."""


def check_heads(config: Any, parts: int, degrees: str, where: str) -> None:
    """Refuse a model whose heads cannot be shared out evenly.

    Args:
        config: of transformers; of a model of another kind, anything.
        parts: over how many processes.
        degrees: which degrees these are, for errors.
        where: the recipe's path of the training, for errors.

    Raises:
        InputError: a number of heads is no multiple of that.
    """
    for name in HEADS:
        heads = getattr(config, name, None)
        if isinstance(heads, int) and heads % parts:
            raise InputError(
                f"{where}.strategy: {name} is {heads} and cannot be shared out over {parts} processes ({degrees}); a "
                f"head stays whole, so {degrees} has to divide it"
            )
