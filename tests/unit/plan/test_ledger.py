"""The ledger of memory: what is held, of which kind, and when it was most."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from understudy.plan.ledger import Ledger

MIB = 2**20


def mib(count: int) -> torch.Tensor:
    return torch.zeros(count * MIB // 4)


def test_the_most_that_was_held_at_once_is_told_with_its_phase() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        kept = mib(2)
        ledger.phase = "forward and backward"
        _ = [mib(3), mib(4)]
        del _
        ledger.phase = "optimizer step"
        last = mib(1)
    peak = ledger.peak()
    assert (peak.bytes, peak.phase) == (9 * MIB, "forward and backward")
    assert peak.kinds == {"activations": 7 * MIB, "temporary": 2 * MIB}
    del kept, last


def test_a_view_holds_what_it_looks_at_and_is_counted_once() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        view = mib(2)[:5].view(5, 1)
        other = mib(1)
    assert ledger.peak().bytes == 3 * MIB
    del view, other


def test_what_is_held_stays_when_the_rest_is_forgotten() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        kept = mib(1)
        gone = mib(5)
        del gone
        ledger.forget()
        again = mib(2)
    assert ledger.peak().bytes == 3 * MIB
    del kept, again


def test_a_storage_that_is_emptied_is_free_until_it_is_filled_again() -> None:
    """As fully_shard does with what it has gathered."""
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        gathered = mib(4)
        gathered.untyped_storage().resize_(0)
        ledger.forget()
        other = mib(1)
        assert ledger.peak().bytes == MIB
        gathered.untyped_storage().resize_(4 * MIB)
    assert ledger.peak().kinds == {"communication": 4 * MIB, "temporary": MIB}
    del other


def test_kinds_can_be_said_and_sizes_are_rounded_up() -> None:
    ledger = Ledger(vocabulary=7, grain=512)
    with FakeTensorMode(), ledger.watching():
        weight = torch.zeros(3)
        ledger.mark("parameters", [weight])
        logits = torch.zeros(2, 7)
    assert ledger.peak().kinds == {"parameters": 512, "logits": 512}
    del logits


def test_operations_are_counted_also_where_torch_has_not_taken_them_apart() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        product = torch.nn.Linear(4, 5)
        with torch.inference_mode():
            product(torch.zeros(3, 4))
    assert ledger.flops == 2 * 3 * 4 * 5
