"""Lost peers."""

from torch.distributed import DistError

from understudy.parallel.peers import is_lost_peer

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [10.0.0.1]:64714"


def test_gloos_and_torchs_errors_tell_of_a_lost_peer() -> None:
    assert is_lost_peer(RuntimeError(GLOO))
    assert is_lost_peer(DistError("NCCL communicator was aborted"))


def test_a_models_own_errors_do_not() -> None:
    assert not is_lost_peer(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_lost_peer(ValueError(GLOO))
