"""torch.compile, a block at a time: blocks that are alike are compiled once (as torchtitan does).

What is compiled is a block's own computation; what shards and hooks do around it stays as it is.
"""

import torch
from torch import nn

from understudy.errors import InputError
from understudy.parallel.blocks import needed_blocks

BACKEND = "inductor"


def compile_blocks(model: nn.Module, where: str) -> None:
    """Let a model's repeated blocks be compiled at their first use, in place.

    Args:
        model: before it is sharded, and after checkpoint_activations().
        where: the recipe's path of the training, for errors.

    Raises:
        InputError: the model has no repeated blocks, or there is no C++ compiler here.
    """
    found = needed_blocks(model, f"{where}.compile", "set it to false")
    if BACKEND == "inductor":
        _need_compiler(where)
    for block in found:
        block.forward = torch.compile(block.forward, backend=BACKEND)


def _need_compiler(where: str) -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise InputError(
            f"{where}.compile: there is no C++ compiler on this machine (g++, or the one that CXX names); install one, "
            "or set it to false"
        ) from error
