"""Errors that a rank gets when another rank is gone: its own computation is sound."""

from torch.distributed import DistError


def is_lost_peer(error: BaseException) -> bool:
    """Whether an error only means a lost peer. Gloo's errors have no class to catch."""
    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and "gloo/transport" in str(error))
