"""A whole step of training: a job's, and loops by hand over transformers' model, with the formula and with Liger."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.gpu.clock import Clock, our_training
from benchmarks.gpu.sizes import Model, Sizes
from tests.ranks.plan.measured import DISTILL, LABELS
from tests.ranks.train import jobs
from understudy.jobs.specification import JobSpec

STEPS = 16
HEAD = "| step | ms | MiB | last loss |\n" + "|---" * 4 + "|"
Losses = Callable[[Any, Any | None, Tensor, Tensor], Tensor]
"""Of student and teacher, as transformers has them, inputs and labels (B, L)."""


def net(model: Model, sizes: Sizes) -> Any:
    """A Llama of transformers, with weights of its own choice, on the device."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device(sizes.device):
        return LlamaForCausalLM(LlamaConfig(vocab_size=sizes.vocabulary, use_cache=False, **model["config"]))


def formula(student: Any, teacher: Any | None, inputs: Tensor, labels: Tensor) -> Tensor:
    """Labels alone, or 0.5 beside KL 0.5 at T 2."""
    logits, targets = student(inputs).logits.flatten(0, 1), labels.flatten()
    hard = functional.cross_entropy(logits, targets)
    if teacher is None:
        return hard
    with torch.no_grad():
        taught = functional.log_softmax(teacher(inputs).logits.flatten(0, 1) / 2.0, -1, dtype=torch.float32)
    log_probabilities = functional.log_softmax(logits / 2.0, -1, dtype=torch.float32)
    return 0.5 * hard + 2.0 * functional.kl_div(log_probabilities, taught, reduction="batchmean", log_target=True)


def with_liger(student: Any, teacher: Any | None, inputs: Tensor, labels: Tensor) -> Tensor:
    """The same by Liger's fused losses, from the states below the heads."""
    from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    states, targets = student.model(inputs)[0].flatten(0, 1).bfloat16(), labels.flatten()
    head = student.lm_head.weight.bfloat16()
    if teacher is None:
        cross_entropy: Tensor = LigerFusedLinearCrossEntropyLoss()(head, states, targets)
        return cross_entropy
    with torch.no_grad():
        teacher_states = teacher.model(inputs)[0].flatten(0, 1).bfloat16()
    loss = LigerFusedLinearJSDLoss(weight_hard_loss=0.5, weight_soft_loss=2.0, beta=0.0, temperature=2.0)
    total: Tensor = loss(states, head, teacher_states, teacher.lm_head.weight, targets)
    return total


def by_hand(sizes: Sizes, losses: Losses, *, distil: bool) -> dict[str, float]:
    """A loop as one writes it: autocast to bf16, clipped gradients, fused AdamW; a teacher in bf16."""
    torch.manual_seed(0)
    student, teacher = net(sizes.student, sizes), None
    if distil:
        teacher = net(sizes.teacher, sizes).bfloat16().eval().requires_grad_(requires_grad=False)
    optimizer, clock = torch.optim.AdamW(student.parameters(), lr=3e-4, fused=sizes.device == "cuda"), Clock()
    for _ in range(STEPS):
        tokens = torch.randint(sizes.vocabulary, (sizes.batch, sizes.length + 1)).to(sizes.device)
        with torch.autocast(sizes.device, torch.bfloat16):
            loss = losses(student, teacher, tokens[:, :-1], tokens[:, 1:])
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock()
    return {**clock.measurements, "loss": loss.item()}


def ours(sizes: Sizes, folder: Path, *, distil: bool, **train: Any) -> dict[str, float]:
    """The same as a job."""
    changes: dict[str, Any] = {"objectives": LABELS}
    if distil:
        changes = {"objectives": DISTILL, "teacher": str(folder / "teacher"), "teacher_model": sizes.teacher}
        changes["teacher_precision"] = "bf16"
    return our_training(job(sizes, folder, sizes.student, **changes, train=train))


def job(sizes: Sizes, folder: Path, model: Model, **changes: Any) -> JobSpec:
    """A training in bf16 on one device, in a new folder."""
    optimizer = {"learning_rate": 3e-4, "weight_decay": 0.01}
    settings = {"steps": STEPS, "batch_size": sizes.batch, "precision": "bf16", "optimizer": optimizer}
    settings |= changes.pop("train", {})
    job_folder = folder / f"job-{len(list(folder.glob('job-*')))}"
    return jobs.spec(job_folder, folder / "examples", model, device=sizes.device, train=settings, **changes)


def row(name: str, sizes: Sizes, folder: Path) -> str:
    """A line of the table."""
    measured = ROWS[name](sizes, folder)
    return f"| {name} | {measured['seconds'] * 1e3:.1f} | {measured['bytes'] / 2**20:,.0f} | {measured['loss']:.3f} |"


ROWS: dict[str, Callable[[Sizes, Path], dict[str, float]]] = {
    "student alone: ours": lambda sizes, folder: ours(sizes, folder, distil=False),
    "student alone: by hand": lambda sizes, _: by_hand(sizes, formula, distil=False),
    "student alone: by hand with Liger": lambda sizes, _: by_hand(sizes, with_liger, distil=False),
    "student alone: ours, compiled": lambda sizes, folder: ours(sizes, folder, distil=False, compile=True),
    "distilling: ours": lambda sizes, folder: ours(sizes, folder, distil=True),
    "distilling: by hand": lambda sizes, _: by_hand(sizes, formula, distil=True),
    "distilling: by hand with Liger": lambda sizes, _: by_hand(sizes, with_liger, distil=True),
    "distilling: ours, compiled": lambda sizes, folder: ours(sizes, folder, distil=True, compile=True),
}
