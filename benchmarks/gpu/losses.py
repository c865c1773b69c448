"""The loss of a step alone, forward and backward: ours, by the formula, Liger's and TRL's."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.gpu.sizes import Sizes, mebibytes, milliseconds
from understudy.models.outputs import States
from understudy.objectives.batch import Batch
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective
from understudy.objectives.objective import Context, objective
from understudy.objectives.pieces import loss_in_pieces
from understudy.recipe import ObjectiveSection, Train

HALVES = (LabelsObjective(type="labels", weight=0.5), LogitsObjective(type="logits", weight=0.5, temperature=2.0))
SOFT = (LogitsObjective(type="logits", weight=1.0, temperature=2.0),)
HARD = (LabelsObjective(type="labels"),)
HEAD = "| loss | ms | MiB above inputs | nats a position | error of the head's gradient |\n" + "|---" * 5 + "|"
Loss = Callable[[], Tensor]


class Case:
    """States of a student, fp32 as under autocast, and of a teacher in bf16, with their heads; all labels count."""

    def __init__(self, sizes: Sizes) -> None:
        torch.manual_seed(0)
        self.sizes, words, device = sizes, sizes.vocabulary, sizes.device
        widths = [model["config"]["hidden_size"] for model in (sizes.student, sizes.teacher)]
        self.head, self.taught = (nn.Linear(width, words, bias=False, device=device) for width in widths)
        self.taught.to(torch.bfloat16).requires_grad_(requires_grad=False)
        self.states = torch.randn(1, sizes.positions, widths[0], device=device, requires_grad=True)
        self.known = torch.randn(1, sizes.positions, widths[1], device=device).bfloat16()
        self.labels = torch.randint(words, (1, sizes.positions), device=device)

    def ours(self, sections: tuple[ObjectiveSection, ...]) -> Loss:
        """As a job computes it."""
        criterion, words = objective(sections, Context(Train(steps=1), seed=0)), self.sizes.vocabulary
        batch = Batch(self.labels, self.labels)
        teachers = [] if sections == HARD else [States(self.known, self.taught, (), words, self.taught)]

        def loss() -> Tensor:
            student = States(self.states, self.head, (*self.head.parameters(),), words, self.head)
            return loss_in_pieces(criterion, student, teachers, batch) / self.sizes.positions

        return loss

    def plain(self, hard: float, soft: float, *, exact: bool = False) -> Loss:
        """By the formula; in fp32 throughout, where a reference is wanted."""

        def loss() -> Tensor:
            with torch.autocast(self.sizes.device, torch.bfloat16, enabled=not exact):
                logits = self.head(self.states[0])
                total = hard * functional.cross_entropy(logits, self.labels[0]) if hard else logits.new_zeros(())
                if soft:
                    with torch.no_grad():
                        taught = functional.linear(self.known[0], self.taught.weight).float()
                    student, teacher = (functional.log_softmax(values / 2.0, -1) for values in (logits.float(), taught))
                    kl = functional.kl_div(student, teacher, reduction="batchmean", log_target=True)
                    total = total + soft * 4.0 * kl
            return total

        return loss

    def liger(self) -> Loss:
        """Its chunked JSD at beta 0, which is KL(teacher || student), without the factor T^2."""
        from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss

        computed = LigerFusedLinearJSDLoss(weight_hard_loss=0.5, weight_soft_loss=0.5 * 4, beta=0.0, temperature=2.0)

        def loss() -> Tensor:
            head, states = self.head.weight.bfloat16(), self.states[0].bfloat16()
            loss: Tensor = computed(states, head, self.known[0], self.taught.weight, self.labels[0])
            return loss

        return loss

    def liger_labels(self) -> Loss:
        """Its fused cross-entropy."""
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        computed = LigerFusedLinearCrossEntropyLoss()

        def loss() -> Tensor:
            loss: Tensor = computed(self.head.weight.bfloat16(), self.states[0].bfloat16(), self.labels[0])
            return loss

        return loss

    def trl(self) -> Loss:
        """The divergence of its DistillationTrainer, which has no labels, without the factor T^2."""
        from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

        def loss() -> Tensor:
            head, states = self.head.weight.bfloat16(), self.states[0].bfloat16()
            divergence, _ = ChunkedDivergenceFunction.apply(
                states, head, None, self.known[0], self.taught.weight, None, 0.0, 2.0
            )
            total: Tensor = 4.0 * divergence.mean()
            return total

        return loss


def rows(sizes: Sizes) -> Iterator[str]:
    """The table, a line at a time."""
    yield HEAD
    case = Case(sizes)
    groups: tuple[tuple[tuple[float, float], dict[str, Callable[[], Loss]]], ...] = (
        ((0.5, 0.5), {"ours": lambda: case.ours(HALVES), "Liger": case.liger}),
        ((0.0, 1.0), {"ours": lambda: case.ours(SOFT), "TRL": case.trl}),
        ((1.0, 0.0), {"ours": lambda: case.ours(HARD), "Liger": case.liger_labels}),
    )
    for (hard, soft), ways in groups:
        exact = gradient(case.plain(hard, soft, exact=True), case)[1]
        ways["by hand"] = lambda hard=hard, soft=soft: case.plain(hard, soft)  # type: ignore[misc]
        for name, function in ways.items():
            yield row(f"labels {hard:g}, KL {soft:g}: {name}", function, case, exact)


def gradient(loss: Loss, case: Case) -> tuple[float, Tensor]:
    """The loss, and the gradient of the head in bf16, which is as exact as it is used here."""
    total = loss()
    gradient_of_head = torch.autograd.grad(total, case.head.weight)[0]
    return total.item(), gradient_of_head


def row(name: str, build: Callable[[], Loss], case: Case, exact_gradient: Tensor) -> str:
    """A line, measured; an error is a line, too."""
    try:
        loss = build()

        def step() -> None:
            with torch.autocast(case.sizes.device, torch.bfloat16):
                total = loss()
            torch.autograd.grad(total, (case.states, case.head.weight))

        with torch.autocast(case.sizes.device, torch.bfloat16):
            nats, computed = gradient(loss, case)
        apart = ((computed.float() - exact_gradient).norm() / exact_gradient.norm()).item()
        del computed
        duration = milliseconds(step, case.sizes.device)
        return f"| {name} | {duration:.1f} | {mebibytes(step, case.sizes.device):,.0f} | {nats:.4f} | {apart:.1e} |"
    except (ImportError, RuntimeError, ValueError) as error:
        return f"| {name} | failed: {type(error).__name__}: {' '.join(str(error).split())[:300]} |"
