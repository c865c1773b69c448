"""The loss of a distillation step, forward and backward: in pieces with closed gradients, and by the plain formula.

    python -m benchmarks.losses [--rounds 5] [--positions 1024] [--width 512]

Labels 0.5 and KL 0.5 at T 2, a student's and a teacher's head, on one thread of a CPU, fp32. Both take turns; times are
processor time, and a ratio is the median over rounds. Memory is the peak of allocations above the inputs.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.models.outputs import States
from understudy.objectives.batch import Batch
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective
from understudy.objectives.objective import Context, objective
from understudy.objectives.pieces import loss_in_pieces
from understudy.plan.ledger import Ledger
from understudy.recipe import Train

VOCABULARIES = (4_096, 32_768, 131_072)
BOTH = (LabelsObjective(type="labels", weight=0.5), LogitsObjective(type="logits", weight=0.5, temperature=2.0))
ALONE = (LabelsObjective(type="labels"),)
Loss = Callable[[], Tensor]


def case(vocabulary: int, positions: int, width: int) -> tuple[States, States, Batch]:
    """The features of a student and a teacher for a batch, and the batch."""
    torch.manual_seed(0)
    heads = [nn.Linear(width, vocabulary, bias=False) for _ in "ab"]
    heads[1].requires_grad_(requires_grad=False)
    states = [torch.randn(1, positions, width, requires_grad=head is heads[0]) for head in heads]
    student, teacher = (
        States(features, head, (*head.parameters(),), vocabulary, head)
        for features, head in zip(states, heads, strict=True)
    )
    labels = torch.randint(vocabulary, (1, positions))
    return student, teacher, Batch(labels, labels)


def plain(student: States, teacher: States | None, batch: Batch) -> Tensor:
    """The formula, as one writes it by hand."""
    logits, labels = student.head(student.states).flatten(0, -2), batch.labels.flatten()
    hard = functional.cross_entropy(logits, labels, reduction="sum")
    if teacher is None:
        return hard
    with torch.no_grad():
        taught = teacher.head(teacher.states).flatten(0, -2)
    soft = functional.kl_div(
        functional.log_softmax(logits / 2.0, -1),
        functional.log_softmax(taught / 2.0, -1),
        reduction="sum",
        log_target=True,
    )
    return 0.5 * hard + 0.5 * 4.0 * soft


def seconds(loss: Loss, student: States) -> float:
    """Processor time of loss and gradients."""
    begun = time.process_time()
    torch.autograd.grad(loss(), (student.states, *student.parameters))
    return time.process_time() - begun


def bytes_at_most(loss: Loss, student: States) -> int:
    """Above the inputs."""
    ledger = Ledger(vocabulary=student.vocabulary, grain=64)
    with ledger.watching():
        torch.autograd.grad(loss(), (student.states, *student.parameters))
    return ledger.peak().bytes


def row(name: str, vocabulary: int, positions: int, width: int, rounds: int) -> str:
    """A line of the table."""
    student, teacher, batch = case(vocabulary, positions, width)
    taught = None if name == "labels" else teacher
    criterion = objective(ALONE if taught is None else BOTH, Context(Train(steps=1), seed=0))
    ways: list[Loss] = [
        lambda: loss_in_pieces(criterion, student, [taught] if taught else [], batch),
        lambda: plain(student, taught, batch),
    ]
    turns = [[seconds(function, student) for function in ways] for _ in range(rounds + 1)][1:]
    ours, by_hand = (statistics.median(times) for times in zip(*turns, strict=True))
    ratio = statistics.median(pieces / at_once for pieces, at_once in turns)
    mebibytes = [bytes_at_most(function, student) / 2**20 for function in ways]
    times = f"{ours * 1e3:,.0f} | {by_hand * 1e3:,.0f} | {ratio:.2f}"
    memory = f"{mebibytes[0]:,.0f} | {mebibytes[1]:,.0f} | {mebibytes[0] / mebibytes[1]:.2f}"
    return f"| {name} | {vocabulary:,} | {times} | {memory} |"


def main() -> None:
    """Print the table, each row as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| learns from | vocabulary | ours, ms | plain, ms | ratio | ours, MiB | plain, MiB | ratio |")
    print("|---" * 8 + "|", flush=True)
    for name in ("labels", "labels and teacher"):
        for vocabulary in VOCABULARIES:
            print(row(name, vocabulary, options.positions, options.width, options.rounds), flush=True)


if __name__ == "__main__":
    main()
