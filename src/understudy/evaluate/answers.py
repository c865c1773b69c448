"""One model's answers to the test split: its results, example by example.

They know no role and no other model: the teacher of one run is measured once, and may be the champion of another.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from understudy.evaluate.completions import Beginnings, beginnings
from understudy.evaluate.contents import COMPLETIONS, CONFUSION, MOST_LABELS, results_file
from understudy.evaluate.metrics import FloatArray
from understudy.evaluate.scoring import Batch, Documents, Predicted, Scores, predicted
from understudy.evaluate.shares import WHOLE, Share
from understudy.evaluate.splits import TestSplit

MOST_LOGITS = 2**28
"""That a batch may have, 1 GiB in fp32: 64 sequences of 2,048 tokens at 128k words would have 64 GiB."""

Results = dict[str, FloatArray]
"""Sums by example, as of Scores. `confusion`: how many images of a label (row) were taken for which (column).
`completions`: the tokens with which it goes on after some documents' beginnings; NaN where its logits are."""


def batch_size(asked: int, described: Mapping[str, Any]) -> int:
    """How many inputs are predicted at a time: what the recipe asks for, or as many as logits leave room for.

    Args:
        asked: the recipe's.
        described: the content of examples.json.
    """
    if described["task"] != "causal-lm":
        return asked
    logits: int = described["sequence_length"] * described["vocab_size"]
    return max(1, min(asked, MOST_LOGITS // logits))


def results(
    module: nn.Module,
    split: TestSplit,
    size: int,
    device: torch.device,
    labels: int,
    tick: Callable[[int], None],
    share: Share = WHOLE,
) -> Results:
    """A model's results; of no meaning on other ranks than the first.

    Args:
        module: the model, on its device.
        split: the test split as it sees it.
        size: inputs in a batch.
        device: the model's.
        labels: of a classifier, otherwise 0.
        tick: called with the number of steps that the ranks have done, of step_count(), each time that they have done
            some.
        share: this rank's of the batches.
    """
    counted, batches = labels if labels <= MOST_LABELS else 0, split.batch_count(size)
    scores = Scores(len(split.tokens), counted)
    with torch.inference_mode(), full_precision():
        mine = split.batches(size, share)
        for done in range(0, batches, share.of):
            found = _predicted(module, split, next(mine, None), device, counted, share)
            for one in share.gathered(found):
                scores.add(one.examples, one.nll, one.correct, one.confidence)
                scores.confusion += one.confusion
            tick(min(share.of, batches - done))
        completions = _completions(module, split, device, tick)
    return {**scores.arrays(), CONFUSION: scores.confusion.astype(np.float64), COMPLETIONS: completions}


def step_count(split: TestSplit, size: int) -> int:
    """How often a model is asked for its results: for each batch, and for each token that is completed."""
    return split.batch_count(size) + (_beginnings(split).steps if isinstance(split, Documents) else 0)


def _beginnings(split: Documents) -> Beginnings:
    return beginnings(split.tokens, split.length)


def _completions(module: nn.Module, split: TestSplit, device: torch.device, tick: Callable[[int], None]) -> FloatArray:
    """What a model goes on with, (documents, tokens): on every rank, since of models in shards each has a part."""
    if not isinstance(split, Documents):
        return np.zeros((0, 0))
    chosen = _beginnings(split)
    sequences = torch.from_numpy(split.first_inputs(chosen.documents, chosen.given)).to(device)
    written = np.zeros(chosen.shape)
    for place in range(chosen.steps):
        highest, following = module(sequences).logits[:, -1].float().max(dim=-1)
        written[:, place] = following.double().masked_fill(highest.isnan(), torch.nan).cpu().numpy()
        sequences = torch.cat([sequences, following[:, None]], dim=1)
        tick(1)
    return written


def _predicted(
    module: nn.Module, split: TestSplit, batch: Batch | None, device: torch.device, labels: int, share: Share
) -> Predicted | None:
    """What a model makes of this rank's next batch, if there is one."""
    if batch:
        return predicted(module, batch, device, labels)
    if share.spread:  # the others wait for this rank's part of each block
        module(torch.from_numpy(split.sample(1)).to(device))
    return None


def full_precision() -> AbstractContextManager[Any]:
    """fp32 is fp32 on GPUs, too: convolutions would use TF32 (10 bits of mantissa) unless told not to."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


def write(folder: Path, role: str, found: Results) -> None:
    """Write a model's results into a folder, as those of a role."""
    np.savez_compressed(folder / results_file(role), allow_pickle=False, **found)


def read(path: Path) -> Results:
    """Results that were written before."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def by_role(role: str, found: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """A model's sums by example, under the names that per_example.npz has."""
    return {f"{role}.{name}": array for name, array in found.items() if name != CONFUSION}
