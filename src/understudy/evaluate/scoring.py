"""Per-example results from logits, on which every metric is based."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from understudy.data.measured import Batch
from understudy.evaluate.metrics import ANSWER, BINS, FloatArray, bin_of

Integers = NDArray[np.int64]


class Scores:
    """One model's per-example sums, filled batch by batch.

    Args:
        examples: number of examples.
        labels: number of labels of the confusion matrix; 0 for none.
        answers: whether to collect each example's answer, of a model with one prediction for each.
    """

    def __init__(self, examples: int, labels: int = 0, *, answers: bool = False) -> None:
        self.confusion: Integers = np.zeros((labels, labels), dtype=np.int64)
        self.nll, self.correct = np.zeros(examples), np.zeros(examples)
        self.answers = np.full(examples, np.nan) if answers else None
        self.confidence = {part: np.zeros((examples, BINS)) for part in ("count", "sum", "correct")}

    def add(
        self,
        examples: Integers,
        nll: FloatArray,
        correct: FloatArray,
        confidence: FloatArray,
        answers: FloatArray | None = None,
    ) -> None:
        """Add predictions, (P,) each, to their examples."""
        if self.answers is not None and answers is not None:
            self.answers[examples] = answers
        np.add.at(self.nll, examples, nll)
        np.add.at(self.correct, examples, correct)
        index = (examples, bin_of(confidence))
        for part, values in (("count", np.ones_like(confidence)), ("sum", confidence), ("correct", correct)):
            np.add.at(self.confidence[part], index, values)

    def arrays(self) -> dict[str, FloatArray]:
        """The sums by name; in per_example.npz the model's role is a prefix."""
        confidence = {f"confidence_{part}": values for part, values in self.confidence.items()}
        answers = {} if self.answers is None else {ANSWER: self.answers}
        return {"nll": self.nll, "correct": self.correct, **confidence, **answers}


@dataclass(frozen=True)
class Predicted:
    """A model's predictions for a batch: (P,) each, without padding and context."""

    examples: Integers
    nll: FloatArray
    correct: FloatArray
    confidence: FloatArray
    confusion: Integers
    """Counts by label (row) and prediction (column)."""
    answers: FloatArray | None = None
    """Indices of the largest logits, if they are collected; NaN where the logits are."""


def predicted(
    module: nn.Module, batch: Batch, device: torch.device, labels: int = 0, *, answers: bool = False
) -> Predicted:
    """A model's predictions for a batch; `labels` and `answers` are as in Scores."""
    logits = module(torch.from_numpy(batch.inputs).to(device)).logits
    is_counted = torch.from_numpy(batch.examples >= 0).to(device)
    nll, correct, confidence = predictions(logits, torch.from_numpy(batch.targets).to(device))
    confusion = np.zeros((labels, labels), dtype=np.int64)
    if labels:
        is_measured = (is_counted & ~correct.isnan()).cpu().numpy()
        labels_predicted = logits.argmax(dim=-1).cpu().numpy()
        np.add.at(confusion, (batch.targets[is_measured], labels_predicted[is_measured]), 1)
    collected = None
    if answers:
        collected = logits.argmax(dim=-1).double().masked_fill(correct.isnan(), torch.nan)[is_counted].cpu().numpy()
    nll, correct, confidence = (part[is_counted].double() for part in (nll, correct, confidence))
    examples = batch.examples[batch.examples >= 0]
    return Predicted(examples, nll.cpu().numpy(), correct.cpu().numpy(), confidence.cpu().numpy(), confusion, collected)


def predictions(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Negative log-likelihood in nats, correctness and confidence from logits (..., classes) and targets (...).

    Where logits are NaN or +inf all three are NaN: a missing prediction is not a wrong one.
    """
    logits = logits.float()
    normaliser = logits.logsumexp(dim=-1)
    nll = normaliser - logits.gather(-1, targets[..., None])[..., 0]
    highest, predicted = logits.max(dim=-1)
    confidence = (highest - normaliser).exp()
    correct = (predicted == targets).float()
    unknown = confidence.isnan()
    return nll.masked_fill(unknown, torch.nan), correct.masked_fill(unknown, torch.nan), confidence
