"""Marks around the parts of a training step: a span of the trace where a profiler records, and otherwise nothing."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.profiler import record_function

MARK = "understudy: "
"""What the names of spans begin with."""
NOTHING = nullcontext()


def mark(kind: str) -> AbstractContextManager[None]:
    """Around what a step does of a kind: data, teacher, forward, backward or optimizer. The innermost mark counts."""
    # Asked of torch each time, 0.1 us: nobody has to hand on whether a profiler records.
    return _recorded(kind) if torch.autograd.profiler._is_profiler_enabled else NOTHING


@contextmanager
def _recorded(kind: str) -> Iterator[None]:
    with record_function(MARK + kind):
        yield
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            # What was asked of the GPU in here belongs here.
            torch.cuda.synchronize()
