"""Optimisers and the learning rate as a function of the step."""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from understudy.recipe import Optimizer as OptimizerSettings
from understudy.recipe import Schedule


def optimizer(parameters: Sequence[nn.Parameter], settings: OptimizerSettings) -> Optimizer:
    """The recipe's optimiser. Vectors (biases, norms) get no weight decay."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    decayed = [parameter for parameter in trained if parameter.ndim > 1]
    plain = [parameter for parameter in trained if parameter.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if settings.name == "sgd":
        chosen: Optimizer = SGD(groups, lr=0.0, momentum=settings.momentum, fused=True)
    else:
        chosen = AdamW(groups, lr=0.0, betas=(settings.beta1, settings.beta2), fused=True)
    _make_state(chosen)
    set_learning_rate(chosen, settings.learning_rate)
    return chosen


def _make_state(chosen: Optimizer) -> None:
    """At a learning rate of 0, give every parameter the state that it has before its first step.

    Torch makes it at a parameter's first gradient. A parameter that never gets one (dinov2's mask token) would then be
    missing in checkpoints, and torch refuses to load those.
    """
    parameters = [parameter for group in chosen.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    chosen.step()
    chosen.zero_grad(set_to_none=True)
    for state in chosen.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                value.zero_()


def learning_rate(step: int, steps: int, peak: float, schedule: Schedule) -> float:
    """The learning rate of a step in [0, steps): linear warm-up to peak, then decay towards final * peak.

    Cosine as in Loshchilov & Hutter 2017, without restarts.
    """
    # Where a recipe gives epochs, only the data tells how few steps that is; the peak has to be reached all the same.
    warmup, final = min(schedule.warmup, steps - 1), schedule.final
    if step < warmup:
        return float(peak * (step + 1) / warmup)
    done = (step - warmup) / max(1, steps - warmup)
    shape = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "constant": 1.0}[schedule.decay]
    return float(peak * (final + (1 - final) * shape))


def set_learning_rate(chosen: Optimizer, value: float) -> None:
    """Use this learning rate from the next step on."""
    for group in chosen.param_groups:
        group["lr"] = value


def clip(parameters: Sequence[nn.Parameter], limit: float | None) -> torch.Tensor:
    """Scale the gradients down to a global norm of at most `limit`.

    Returns:
        The norm before that, whole on every rank.
    """
    norm = nn.utils.clip_grad_norm_(parameters, math.inf if limit is None else limit)
    return norm.full_tensor() if isinstance(norm, torch.distributed.tensor.DTensor) else norm
