"""Cached results of operations on FakeTensors, compared with those of FakeTensorMode."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._pytree import tree_leaves

from tests.unit.plan.test_depth import llama, planned
from understudy.plan import operation_cache as module
from understudy.plan.operation_cache import OperationCache
from understudy.plan.trace import traces
from understudy.recipe import Degrees

aten = torch.ops.aten

CALLS: list[tuple[Any, Callable[[], tuple[Any, ...]]]] = [
    (aten.mm.default, lambda: (torch.empty(3, 4), torch.empty(4, 5))),
    (aten.add_.Tensor, lambda: (torch.empty(3), torch.empty(1))),
    (aten.view.default, lambda: (torch.empty(3, 4)[1:], [-1])),
    (aten.t.default, lambda: (torch.empty(3, 4),)),
    (aten.split.Tensor, lambda: (torch.empty(6, 2), 2)),
    (aten.cat.default, lambda: ([torch.empty(2), torch.empty(3)],)),
    (aten.native_layer_norm.default, lambda: (torch.empty(2, 3), [3], None, None, 1e-5)),
    (aten._foreach_add_.Scalar, lambda: ([torch.empty(2), torch.empty(3)], 1)),
    (aten.slice.Tensor, lambda: (torch.empty(7, 2), 0, 1, 6, 2)),
    (aten.index.Tensor, lambda: (torch.empty(4), [torch.empty(3, dtype=torch.int64)])),
    (aten.sum.default, lambda: (torch.empty(3, dtype=torch.bool),)),
    (aten._to_copy.default, lambda: (torch.empty(3, 4).t(),)),
    (aten.expand.default, lambda: (torch.empty(3, 1), [3, 5])),
]


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    before = dict(module._remembered)
    module._remembered.clear()
    yield
    module._remembered.clear()
    module._remembered.update(before)


def properties(result: Any, args: Any) -> Any:
    """All properties of an operation's result, with the input whose storage it shares."""
    if isinstance(result, list | tuple):
        return [type(result), *(properties(part, args) for part in result)]
    if not isinstance(result, FakeTensor):
        return result
    tensors = [part for part in tree_leaves(args) if isinstance(part, Tensor)]
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    data = result.untyped_storage()._cdata
    return (
        *(result.shape, result.stride(), result.storage_offset(), result.dtype, result.device, result.requires_grad),
        result.untyped_storage().nbytes(),
        storages.index(data) if data in storages else None,
        [number for number, tensor in enumerate(tensors) if tensor is result],
        *(torch._C._dispatch_key_set(result), result.is_inference(), sorted(result.__dict__), result.fake_mode),
    )


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(("func", "make"), CALLS)
def test_a_cached_result_has_the_same_properties(func: Any, make: Callable[[], Any], inference: bool) -> None:
    with FakeTensorMode() as mode:
        cache = OperationCache(mode)
        outside = make()  # as weights are, which are of no inference mode
        with torch.no_grad(), torch.inference_mode(inference):
            for args in (outside, make(), outside, make()):
                assert properties(cache.run(func, args, {}), args) == properties(func(*args), args)


OTHERS: list[tuple[Any, tuple[Callable[[], Any], Callable[[], Any]]]] = [
    (aten._to_copy.default, (lambda: (torch.empty(4, 3),), lambda: (torch.empty(3, 4).t(),))),
    (aten.view.default, (lambda: (torch.empty(4)[:2], [2, 1]), lambda: (torch.empty(4)[2:], [2, 1]))),
    (
        aten.mul.Tensor,
        (lambda: (torch.empty(2, dtype=torch.int64), 2), lambda: (torch.empty(2, dtype=torch.int64), 2.0)),
    ),
    (aten.neg.default, (lambda: (torch.empty(2),), lambda: (torch.empty(2, dtype=torch.bfloat16),))),
    (aten.sum.dim_IntList, (lambda: (torch.empty(2, 2), [0]), lambda: (torch.empty(2, 2), [0, 1]))),
    (aten.cat.default, (lambda: ([torch.empty(2), torch.empty(3)],), lambda: ([torch.empty(2), torch.empty(4)],))),
]


@pytest.mark.parametrize(("func", "both"), OTHERS)
def test_inputs_that_differ_in_any_property_have_results_of_their_own(
    func: Any, both: tuple[Callable[[], Any], Callable[[], Any]]
) -> None:
    with FakeTensorMode() as mode:
        cache = OperationCache(mode)
        first, second = (properties(cache.run(func, args, {}), args) for args in (make() for make in both))
        assert [first, second] == [properties(func(*args), args) for args in (make() for make in both)]
        assert first != second


def test_a_cached_operation_is_computed_once() -> None:
    calls = []

    def mm(*tensors: Tensor) -> Tensor:
        calls.append(tensors)
        return aten.mm.default(*tensors)

    mm.tags = aten.mm.default.tags  # type: ignore[attr-defined]
    with FakeTensorMode() as mode:
        for width in (4, 4, 5, 4):
            assert OperationCache(mode).run(mm, (torch.empty(3, width), torch.empty(width, 2)), {}).shape == (3, 2)
    assert len(calls) == 2


def test_a_cached_view_is_of_the_current_tensor() -> None:
    with FakeTensorMode() as mode:
        cache, first, second = OperationCache(mode), torch.empty(4), torch.empty(4)
        views = [cache.run(aten.view.default, (tensor, [2, 2]), {}) for tensor in (first, second, first)]
    storages = [view.untyped_storage()._cdata for view in views]
    assert storages == [tensor.untyped_storage()._cdata for tensor in (first, second, first)]


def test_real_tensors_are_computed() -> None:
    with FakeTensorMode() as mode:
        cache = OperationCache(mode)
        for _ in range(2):
            assert isinstance(cache.run(aten.zeros.default, ([2],), {}), FakeTensor)
            with unset_fake_temporarily():
                assert cache.run(aten.zeros.default, ([2],), {}).tolist() == [0, 0]


WAYS: list[tuple[dict[str, int], dict[str, Any]]] = [
    ({}, {}),
    ({"dp_replicate": 2}, {"activation_checkpointing": "full"}),
    ({"dp_shard": 4}, {"activation_checkpointing": "selective"}),
    ({"dp_replicate": 2, "dp_shard": 2, "tp": 2}, {"activation_checkpointing": "selective"}),
    ({"cp": 2, "dp_shard": 2}, {}),
    ({"pp": 2, "dp_shard": 2, "tp": 2}, {"activation_checkpointing": "full"}),
]


@pytest.mark.parametrize(("degrees", "train"), WAYS)
def test_a_trace_is_the_same_to_the_byte(
    monkeypatch: pytest.MonkeyPatch, degrees: dict[str, int], train: dict[str, Any]
) -> None:
    job, split, precision = planned(llama(4), llama(3), **train), Degrees(**degrees), torch.bfloat16
    cached_traces = [repr(traces(job, split, "cuda", precision)) for _ in range(2)]
    monkeypatch.setattr(OperationCache, "run", lambda _, func, args, kwargs: func(*args, **kwargs))
    expected = repr(traces(job, split, "cuda", precision))
    assert cached_traces == [expected, expected]
