"""AdamW with its two moments in eight bits, and a scale for each block of a row (Dettmers et al. 2022).

A step computes in fp32, some rows at a time. Blocks lie inside rows, and shards consist of whole rows: every rank
rounds its part as a single process would, and a checkpoint loads onto any number of shards.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.optim import Optimizer

from understudy.models.parts import local_tensor

BLOCK = 256
"""Numbers with one scale, as in torchao."""
SMALLEST = 4096
"""Size of the smallest weight to quantise; moments of smaller ones and of vectors are in fp32, as in the paper."""
AT_A_TIME = 2**22
"""Numbers that are updated at a time: a step's additional memory is some times as many in fp32."""
EPS = 1e-8
MOMENTS = ("exp_avg", "exp_avg_sq")
SCALES = "scales"


class AdamW8bit(Optimizer):
    """AdamW (Loshchilov & Hutter 2019).

    Args:
        groups: parameter groups, as for torch's optimisers.
        lr: the learning rate.
        betas: decay rates of the moments.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Copy a state into the existing tensors. torch's method would convert all of it to the weight's type."""
        for group, saved_group in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group |= {name: value for name, value in saved_group.items() if name != "params"}
            for parameter, number in zip(group["params"], saved_group["params"], strict=True):
                for name, value in state_dict["state"][number].items():
                    local_tensor(self.state[parameter][name]).copy_(local_tensor(value))

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state |= {"step": torch.tensor(0.0), **_zeros(parameter)}
        state["step"] += 1
        grad = parameter.grad
        if isinstance(parameter, DTensor) and isinstance(grad, DTensor):
            grad = grad.redistribute(placements=parameter.placements)
        assert grad is not None
        local_state = {name: local_tensor(value) for name, value in state.items() if name.startswith(MOMENTS)}
        weights, grads = _rows(local_tensor(parameter.detach())), _rows(local_tensor(grad).contiguous())
        count = max(1, AT_A_TIME // max(1, weights.shape[1]))
        for first in range(0, len(weights), count):
            rows = slice(first, first + count)
            parts = {name: value[rows] for name, value in local_state.items()}
            _move_rows(weights[rows], grads[rows], parts, state["step"], group)


def _move_rows(weights: Tensor, grads: Tensor, state: dict[str, Tensor], step: Tensor, group: dict[str, Any]) -> None:
    """Update some rows, (n, columns); all arguments are plain tensors."""
    updates = []
    for name, beta, new in zip(MOMENTS, group["betas"], (grads, grads.square()), strict=True):
        signed, scales = name == MOMENTS[0], state.get(f"{name}_{SCALES}")
        moment = state[name] if scales is None else _read(state[name], scales, signed=signed)
        moment = moment.lerp(new, 1 - beta)
        if scales is None:
            state[name].copy_(moment)
        else:
            _write(moment, state[name], scales, signed=signed)
        updates.append(moment / (1 - beta**step))
    mean, square = updates
    weights.mul_(1 - group["lr"] * group["weight_decay"])
    weights.sub_(mean.div_(square.sqrt_().add_(EPS)).mul_(group["lr"]))


def _zeros(parameter: Tensor) -> dict[str, Tensor]:
    """The moments of a weight before its first update, all 0: the code of 0 is 0, too."""
    columns = _columns(parameter)
    if parameter.ndim < 2 or parameter.numel() < SMALLEST:
        return {name: _matrix(parameter, columns, torch.float32) for name in MOMENTS}
    codes = {name: _matrix(parameter, columns, torch.uint8) for name in MOMENTS}
    blocks = -(-columns // BLOCK)
    return codes | {f"{name}_{SCALES}": _matrix(parameter, blocks, torch.float32) for name in MOMENTS}


def _matrix(parameter: Tensor, columns: int, kind: torch.dtype) -> Tensor:
    """Zeros (rows, columns), sharded like the parameter's rows."""
    local = local_tensor(parameter)
    plain = torch.zeros(_rows(local).shape[0], columns, dtype=kind, device=local.device)
    if not isinstance(parameter, DTensor):
        return plain
    rows = parameter.shape[0] if parameter.ndim else 1
    return DTensor.from_local(
        plain,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=torch.Size((rows, columns)),
        stride=(columns, 1),
    )


def _columns(parameter: Tensor) -> int:
    return parameter.shape[1:].numel() if parameter.ndim > 1 else 1


def _rows(tensor: Tensor) -> Tensor:
    """A tensor viewed as a matrix."""
    return tensor.view(tensor.shape[0] if tensor.ndim else 1, _columns(tensor))


def _read(codes: Tensor, scales: Tensor, *, signed: bool) -> Tensor:
    """The numbers that codes represent, fp32 (n, columns)."""
    levels = torch.from_numpy(np.roll(_levels(signed=signed), -_zero(signed=signed))).to(codes.device)
    return _picked(levels, codes) * scales.repeat_interleave(BLOCK, dim=1)[:, : codes.shape[1]]


def _write(numbers: Tensor, codes: Tensor, scales: Tensor, *, signed: bool) -> None:
    """Quantise numbers (n, columns) to the nearest level times the largest magnitude of their block."""
    rows, columns = numbers.shape
    blocks = functional.pad(numbers, (0, scales.shape[1] * BLOCK - columns)).view(rows, -1, BLOCK)
    scales.copy_(blocks.abs().amax(-1))
    shares = (blocks / torch.where(scales == 0, 1.0, scales)[..., None]).view(rows, -1)[:, :columns].contiguous()
    # Equivalent to torch.bucketize, which took nine times as long on a CPU.
    edges, lowest = (torch.from_numpy(table).to(codes.device) for table in _edges(signed=signed))
    nearest = _picked(lowest, (shares.view(torch.int32) >> 16) & 0xFFFF)
    nearest += shares > _picked(edges, nearest)
    codes.copy_((nearest - _zero(signed=signed)).to(torch.uint8))  # code 0 is the level 0


def _picked(table: Tensor, numbers: Tensor) -> Tensor:
    return table.index_select(0, numbers.view(-1).int()).view(numbers.shape)


@cache
def _levels(*, signed: bool) -> NDArray[np.float32]:
    """The 256 numbers up to 1 that eight bits represent, ascending: seven decades, the larger ones in finer steps.

    Dynamic tree quantisation, as in the authors' code and torchao.
    """
    levels = [0.0, 1.0]
    for decade in range(7):
        count = 2 ** (decade + (not signed))
        middles = [(0.1 + 0.9 * (number + 0.5) / count) * 10.0 ** (decade - 6) for number in range(count)]
        levels += [*middles, *(-middle for middle in middles)] if signed else middles
    return np.array(sorted(levels), dtype=np.float32)


@cache
def _edges(*, signed: bool) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Midpoints between levels, and how many of them lie below all numbers with the same upper 16 bits.

    At most one of them lies among numbers with the same upper 16 bits. A square that is not 0 never becomes 0: the step
    would be divided by next to nothing.
    """
    levels = _levels(signed=signed)
    edges = np.append((levels[1:] + levels[:-1]) / 2, np.inf).astype(np.float32)
    if not signed:
        edges[0] = 0.0
    upper = np.arange(2**16, dtype=np.uint32) << 16
    ends = np.fmin(upper.view(np.float32), (upper | 0xFFFF).view(np.float32))
    return edges, np.minimum(np.searchsorted(edges, ends), len(edges) - 1).astype(np.int32)


def _zero(*, signed: bool) -> int:
    """The index of 0 among the levels."""
    return 127 if signed else 0
