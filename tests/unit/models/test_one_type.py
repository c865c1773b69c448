"""Operations that are refused without memory, compared with those that torch's kernels refuse."""

import logging
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from understudy.models.one_type import MixedTypes, OneType

TYPES = (torch.float32, torch.bfloat16)
Dtypes = tuple[torch.dtype, torch.dtype]


def zeros(kind: torch.dtype, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=kind)


def first_two() -> Tensor:
    return torch.arange(2)


OPERATIONS: dict[str, Callable[[torch.dtype, torch.dtype], Tensor]] = {
    "linear": lambda x, w: functional.linear(zeros(x, 2, 4), zeros(w, 3, 4)),
    "linear with a bias": lambda x, w: functional.linear(zeros(x, 2, 4), zeros(w, 3, 4), zeros(w, 3)),
    "linear with another bias": lambda x, w: functional.linear(zeros(x, 2, 4), zeros(x, 3, 4), zeros(w, 3)),
    "linear of a sequence": lambda x, w: functional.linear(zeros(x, 2, 5, 4), zeros(w, 3, 4)),
    "matmul": lambda x, w: zeros(x, 2, 4) @ zeros(w, 4, 3),
    "matmul in batches": lambda x, w: zeros(x, 2, 2, 4) @ zeros(w, 2, 4, 3),
    "matrix and vector": lambda x, w: zeros(x, 2, 4) @ zeros(w, 4),
    "einsum": lambda x, w: torch.einsum("ij,kj->ik", zeros(x, 2, 4), zeros(w, 3, 4)),
    "convolution": lambda x, w: functional.conv2d(zeros(x, 1, 2, 4, 4), zeros(w, 3, 2, 2, 2), zeros(w, 3)),
    "transposed convolution": lambda x, w: functional.conv_transpose2d(zeros(x, 1, 2, 4, 4), zeros(w, 2, 3, 2, 2)),
    "layer_norm": lambda x, w: functional.layer_norm(zeros(x, 2, 4), (4,), zeros(w, 4), zeros(w, 4)),
    "layer_norm without a bias": lambda x, w: functional.layer_norm(zeros(x, 2, 4), (4,), zeros(w, 4)),
    "layer_norm with another bias": lambda x, w: functional.layer_norm(zeros(x, 2, 4), (4,), zeros(x, 4), zeros(w, 4)),
    "rms_norm": lambda x, w: functional.rms_norm(zeros(x, 2, 4), (4,), zeros(w, 4)),
    "group_norm": lambda x, w: functional.group_norm(zeros(x, 2, 4, 3), 2, zeros(w, 4), zeros(w, 4)),
    "instance_norm": lambda x, w: functional.instance_norm(zeros(x, 2, 4, 3), weight=zeros(w, 4), bias=zeros(w, 4)),
    "batch_norm": lambda x, w: functional.batch_norm(
        zeros(x, 2, 4, 3), zeros(TYPES[0], 4), zeros(TYPES[0], 4), zeros(w, 4), zeros(w, 4)
    ),
    "attention": lambda x, w: functional.scaled_dot_product_attention(
        zeros(x, 1, 2, 4, 8), zeros(w, 1, 2, 4, 8), zeros(w, 1, 2, 4, 8)
    ),
    "index_add": lambda x, w: zeros(x, 3, 4).index_add(0, first_two(), zeros(w, 2, 4)),
    "index_add_": lambda x, w: zeros(x, 3, 4).index_add_(0, first_two(), zeros(w, 2, 4)),
    "index_put": lambda x, w: zeros(x, 3, 4).index_put((first_two(),), zeros(w, 2, 4)),
    "index_put_": lambda x, w: zeros(x, 3, 4).index_put_((first_two(),), zeros(w, 2, 4)),
    "grid_sample": lambda x, w: functional.grid_sample(zeros(x, 1, 2, 4, 4), zeros(w, 1, 3, 3, 2), align_corners=True),
    "sum": lambda x, w: zeros(x, 4) + zeros(w, 4),
    "product": lambda x, w: zeros(x, 4) * zeros(w, 4),
    "cat": lambda x, w: torch.cat([zeros(x, 4), zeros(w, 4)]),
    "where": lambda x, w: torch.where(zeros(x, 4) > 0, zeros(x, 4), zeros(w, 4)),
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch logs a traceback of each operation that fails without memory."""
    monkeypatch.setattr(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)


def takes(operation: Callable[[torch.dtype, torch.dtype], Tensor], dtypes: Dtypes) -> bool:
    try:
        with torch.no_grad():
            operation(*dtypes)
    except RuntimeError:
        return False
    return True


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("dtypes", [*product(TYPES, TYPES)], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_without_memory_as_much_is_refused_as_with_it(name: str, dtypes: Dtypes) -> None:
    operation = OPERATIONS[name]
    with FakeTensorMode(), OneType():
        tried = takes(operation, dtypes)
    assert tried == takes(operation, dtypes)


def test_the_message_names_the_operation_and_the_types() -> None:
    message = r"^addmm does not take bfloat16 and float32 together$"
    with pytest.raises(MixedTypes, match=message), torch.no_grad(), FakeTensorMode(), OneType():
        OPERATIONS["linear with a bias"](*TYPES)
