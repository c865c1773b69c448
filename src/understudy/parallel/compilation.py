"""torch.compile, a block at a time: blocks that are alike are compiled once (as torchtitan does).

What is compiled is a block's own computation; what shards and hooks do around it stays as it is.
"""

import functools
import logging
import os
import shutil

import torch
from torch import nn
from torch.utils._triton import has_triton

from understudy.errors import InputError
from understudy.parallel.blocks import blocks, needed_blocks

BACKEND = "inductor"

log = logging.getLogger(__name__)


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


def is_worth_compiling(model: nn.Module, device: torch.device) -> bool:
    """Whether a model has blocks, and is on a GPU that kernels can be made for. On a CPU compiling costs more than it
    gains in most trainings.
    """
    return device.type == "cuda" and bool(blocks(model)) and has_compiler()


@functools.cache
def has_compiler() -> bool:
    """Whether torch.compile can make kernels for this machine's GPU; if not, that is said, once."""
    if has_triton() and (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return True
    log.warning(
        "torch.compile cannot make kernels for this GPU (it needs Triton and a C compiler: gcc, clang or the one that "
        "CC names): what would be compiled is computed by single operations, which take longer and round differently"
    )
    return False


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
