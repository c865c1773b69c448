"""Marks around the parts of a training step: a span in the trace while a profiler records, otherwise nothing."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.profiler import record_function

MARK = "understudy: "
"""Prefix of the spans' names."""
NOTHING = nullcontext()


def mark(kind: str) -> AbstractContextManager[None]:
    """Context of one kind of work in a step: data, teacher, forward, backward, optimizer. The innermost mark counts."""
    # torch is queried each time, 0.1 us, so that callers need not pass on whether a profiler records.
    return _recorded(kind) if torch.autograd.profiler._is_profiler_enabled else NOTHING


@contextmanager
def _recorded(kind: str) -> Iterator[None]:
    with record_function(MARK + kind):
        yield
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            # Kernels launched within the span belong to it.
            torch.cuda.synchronize()
