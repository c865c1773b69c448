"""Whether a model keeps the documents of a sequence apart, tested on two of them before training or inference.

For most architectures transformers builds the mask from positions that restart at each document. Others silently attend
to the whole sequence, and so may a strategy that splits it: only outputs show it.
"""

import inspect
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from understudy.errors import InputError
from understudy.models.facts import Facts
from understudy.models.outputs import States
from understudy.objectives.batch import Batch
from understudy.parallel.apply import Spread
from understudy.teachers.teacher import Teacher
from understudy.train.learning import Learner
from understudy.train.precision import autocast

ROUNDING = 0.01
"""Tolerance, as a share of the first half's influence without a mask. With one it is 0 to the bit; in a mixture of
experts, each of which then computes other tokens, 1e-5."""

Evaluate = Callable[[Tensor, Tensor, Tensor | None], Tensor | None]
"""From inputs, a mask of positions to return, and positions, (1, L) each, to a rank's states at those; None where it
has no result."""


def check_takes_positions(model: nn.Module, path: str) -> None:
    """Refuse a model without an input for the boundaries of documents.

    Args:
        model: its network is its submodule `net`.
        path: the model's path in the recipe, for errors.

    Raises:
        InputError: its network takes no `position_ids`.
    """
    net = model.get_submodule("net")
    if "position_ids" not in inspect.signature(net.forward).parameters:
        raise InputError(
            f"{path}: {type(net).__name__} takes no position_ids, so it cannot be told where a document begins; take "
            "another model, or leave out data.text.packing if it is set"
        )


def check_learner(learner: Learner, facts: Facts, spread: Spread, path: str) -> None:
    """Refuse a model that attends to other documents of a sequence. Collective: call it on every rank.

    Args:
        learner: the model.
        facts: of the examples.
        spread: the distribution over ranks.
        path: the model's path in the recipe, for errors.

    Raises:
        InputError: its outputs for a document depend on the previous one, or on no earlier token at all.
    """

    def evaluate(inputs: Tensor, second: Tensor, positions: Tensor | None) -> Tensor | None:
        return learner.evaluate(inputs, second, lambda outputs, mask: outputs.states[mask], positions)

    learner.train(mode=False)
    _check(evaluate, facts, spread, path)
    learner.train(mode=True)
    learner.reshard()


def check_teacher(teacher: Teacher, facts: Facts, spread: Spread, path: str) -> None:
    """The same for a teacher, whose outputs the student is trained on."""

    def evaluate(inputs: Tensor, second: Tensor, positions: Tensor | None) -> Tensor:
        inputs, targets, placed = spread.own_positions(inputs, second, positions)
        with autocast(spread.precision, spread.device):
            outputs: States = teacher.states(Batch(inputs, targets, placed=placed))
        return outputs.states[targets]

    _check(evaluate, facts, spread, path)
    teacher.reshard()


def _check(evaluate: Evaluate, facts: Facts, spread: Spread, path: str) -> None:
    between_documents, within_document = (
        _influence(evaluate, facts, spread, has_documents=has_documents) for has_documents in (True, False)
    )
    if within_document == 0:
        raise InputError(
            f"{path}: the model's outputs do not depend on earlier tokens before it is trained, so a test cannot "
            "show that it separates documents; start from other weights, or leave out data.text.packing if it is set"
        )
    if not between_documents <= ROUNDING * within_document:
        raise InputError(
            f"{path}: the model's outputs for a document depend on the previous document of the sequence: its "
            "attention ignores position_ids; take another model, or leave out data.text.packing if it is set"
        )


def _influence(evaluate: Evaluate, facts: Facts, spread: Spread, *, has_documents: bool) -> float:
    """The influence of a sequence's first half on the outputs for its second half, the same on every rank.

    It is the distance (L2) of these outputs when the first half's tokens change.

    Args:
        evaluate: gives the outputs at the masked positions.
        facts: of the examples.
        spread: the distribution over ranks.
        has_documents: whether the halves are two documents.
    """
    length, half = facts["sequence_length"], facts["sequence_length"] // 2
    index = torch.arange(length, device=spread.device)[None]
    second = index >= half
    positions = torch.where(second, index - half, index) if has_documents else None
    tokens = index % facts["vocab_size"]
    changed = torch.where(second, tokens, (tokens + 1) % facts["vocab_size"])
    before, after = (evaluate(inputs, second, positions) for inputs in (tokens, changed))
    squared = torch.zeros((), dtype=torch.double, device=spread.device)
    if before is not None and after is not None:
        squared += (after.double() - before.double()).square().sum()
    dist.all_reduce(squared)
    return squared.sqrt().item()
