"""torch.compile, block by block: identical blocks are compiled once (as torchtitan does).

Only a block's own computation is compiled, without the sharding and hooks around it.
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


def compile_blocks(model: nn.Module, path: str) -> None:
    """Compile a model's repeated blocks at their first use, in place.

    Args:
        model: not sharded yet, and after checkpoint_activations().
        path: the training's path in the recipe, for errors.

    Raises:
        InputError: the model has no repeated blocks, or this machine has no C++ compiler.
    """
    model_blocks = needed_blocks(model, f"{path}.compile", "set it to false")
    if BACKEND == "inductor":
        _need_compiler(path)
    for block in model_blocks:
        block.forward = torch.compile(block.forward, backend=BACKEND)


def is_worth_compiling(model: nn.Module, device: torch.device) -> bool:
    """Whether a model has blocks, on a GPU for which kernels can be compiled.

    On a CPU compilation costs more than it gains in most trainings.
    """
    return device.type == "cuda" and bool(blocks(model)) and has_compiler()


@functools.cache
def has_compiler() -> bool:
    """Whether torch.compile can build kernels for this machine's GPU; warns once if not."""
    if has_triton() and (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return True
    log.warning(
        "torch.compile cannot build kernels for this GPU (it needs Triton and a C compiler: gcc, clang or the one that "
        "CC names): operations run one by one, which takes longer and rounds differently"
    )
    return False


def _need_compiler(path: str) -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise InputError(
            f"{path}.compile: there is no C++ compiler on this machine (g++, or the one that CXX names); install one, "
            "or set it to false"
        ) from error
