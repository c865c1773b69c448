"""Optimisers and the learning rate as a function of the step."""

import math
from collections.abc import Container, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.optim import SGD, AdamW, Optimizer

from understudy.models.parts import local_tensor
from understudy.recipe import Optimizer as OptimizerSettings
from understudy.recipe import Schedule
from understudy.train.adamw_8bit import AdamW8bit


def build_optimizer(
    parameters: Sequence[nn.Parameter], settings: OptimizerSettings, exempt: Container[int] | None = None
) -> Optimizer:
    """Build the recipe's optimiser.

    Args:
        parameters: it trains those that require gradients.
        settings: the recipe's settings.
        exempt: parameters without weight decay, by id(); default: vectors (biases, norms).
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    without_decay = {id(parameter) for parameter in trained if parameter.ndim < 2} if exempt is None else exempt
    groups = [
        {"params": group, "weight_decay": settings.weight_decay if decays else 0.0}
        for decays in (True, False)
        for group in by_mesh([parameter for parameter in trained if (id(parameter) in without_decay) is not decays])
    ]
    if settings.name == "sgd":
        fused = not any(isinstance(parameter, DTensor) for parameter in trained)  # torch has no fused SGD for DTensors
        optimizer: Optimizer = SGD(groups, lr=0.0, momentum=settings.momentum, fused=fused)
    elif settings.name == "adamw8bit":
        optimizer = AdamW8bit(groups, lr=0.0, betas=(settings.beta1, settings.beta2))
    else:
        optimizer = ShardedAdamW(groups, lr=0.0, betas=(settings.beta1, settings.beta2), fused=True)
    _make_state(optimizer)
    set_learning_rate(optimizer, settings.learning_rate)
    return optimizer


class ShardedAdamW(AdamW):
    """AdamW that updates each rank's shards as plain tensors.

    torch derives the sharding of an operation on lists of DTensors from all of them together: for a hundred, split in
    two dimensions, half a second in the first step, and half a millisecond in each later one.
    """

    def _init_group(self, group: dict[str, Any], parameters: list[Tensor], grads: list[Tensor], *more: Any) -> Any:
        has_complex = super()._init_group(group, parameters, grads, *more)  # type: ignore[no-untyped-call]
        for number, (parameter, grad) in enumerate(zip(parameters, grads, strict=True)):
            if isinstance(parameter, DTensor) and isinstance(grad, DTensor):
                grads[number] = grad.redistribute(placements=parameter.placements)
        for tensors in (parameters, grads, *more):
            tensors[:] = [local_tensor(tensor) for tensor in tensors]
        return has_complex


def _make_state(optimizer: Optimizer) -> None:
    """Create every parameter's initial state, by a step at a learning rate of 0.

    torch creates it at a parameter's first gradient. A parameter that never gets one (dinov2's mask token) would then
    be missing in checkpoints, which torch refuses to load.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                value.zero_()


def learning_rate(step: int, steps: int, peak: float, schedule: Schedule) -> float:
    """The learning rate of a step in [0, steps): linear warm-up to peak, then decay towards final * peak.

    Cosine as in Loshchilov & Hutter 2017, without restarts.
    """
    # With epochs in the recipe the number of steps depends on the data, and may be small; the peak must be reached.
    warmup_steps = schedule.warmup if isinstance(schedule.warmup, int) else round(schedule.warmup * steps)
    warmup, final = min(warmup_steps, steps - 1), schedule.final
    if step < warmup:
        return float(peak * (step + 1) / warmup)
    done = (step - warmup) / max(1, steps - warmup)
    shape = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "constant": 1.0}[schedule.decay]
    return float(peak * (final + (1 - final) * shape))


def set_learning_rate(optimizer: Optimizer, value: float) -> None:
    """Set the learning rate from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = value


def clip(parameters: Sequence[nn.Parameter], limit: float | None) -> torch.Tensor:
    """Clip the gradients to a global norm of at most `limit`.

    Returns:
        The norm before clipping, whole on every rank.
    """
    limit = math.inf if limit is None else limit
    norm = gradient_norm(parameters)
    scale_gradients(parameters, limit, norm)
    return norm


def gradient_norm(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    """The global norm of the gradients, whole on every rank."""
    groups = by_mesh(_with_gradient(parameters)) or [[]]
    grads = [[parameter.grad for parameter in group if parameter.grad is not None] for group in groups]
    norms = [_full_norm(nn.utils.get_total_norm(group)) for group in grads]
    norm: torch.Tensor = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    return norm


def scale_gradients(parameters: Sequence[nn.Parameter], limit: float, norm: torch.Tensor) -> None:
    """Scale gradients with a given norm down to one of at most `limit`."""
    # As nn.utils.clip_grads_with_norm_, but each rank scales its shards as plain tensors: on lists of DTensors torch's
    # dispatch takes longer than the operation.
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
    grads = [local_tensor(parameter.grad) for parameter in parameters if parameter.grad is not None]
    for device in {grad.device for grad in grads}:
        torch._foreach_mul_([grad for grad in grads if grad.device == device], factor.to(device))


def _with_gradient(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    return [parameter for parameter in parameters if parameter.grad is not None]


def by_mesh(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Parameters grouped by device mesh, since operations on lists take those of one mesh."""
    groups: dict[DeviceMesh | None, list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(_mesh(parameter), []).append(parameter)
    return list(groups.values())


def _mesh(tensor: torch.Tensor) -> DeviceMesh | None:
    return tensor.device_mesh if isinstance(tensor, DTensor) else None


def _full_norm(norm: torch.Tensor) -> torch.Tensor:
    full_norm: torch.Tensor = norm.full_tensor() if isinstance(norm, DTensor) else norm
    return full_norm
