"""What a rank is told when another one is gone: nothing is wrong with what it computes itself."""

from torch.distributed import DistError


def is_lost_peer(error: BaseException) -> bool:
    """Whether a rank only lost a peer. Gloo's errors have no class of their own."""
    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and "gloo/transport" in str(error))
