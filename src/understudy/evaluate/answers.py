"""The results of one model on the test split, example by example.

They do not depend on roles or other models: the teacher of one run is measured once, and may be the champion of
another.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from understudy.data.measured import Batch, TestSplit
from understudy.data.prompts import Prompts
from understudy.evaluate import generation
from understudy.evaluate.contents import COMPLETIONS, CONFUSION, MOST_LABELS, results_file
from understudy.evaluate.generation import generated
from understudy.evaluate.metrics import FloatArray
from understudy.evaluate.scoring import Predicted, Scores, predicted
from understudy.evaluate.shares import WHOLE, Share
from understudy.recipe import Generation

MOST_LOGITS = 2**28
"""Maximum logits in a batch, 1 GiB in fp32: 64 sequences of 2,048 tokens would take 64 GiB with 128k words."""

Results = dict[str, FloatArray]
"""Per-example sums, as in Scores. `confusion`: number of images by label (row) and prediction (column).
`completions`: the tokens generated after the split's prompts; NaN where the logits are."""


def batch_size(requested: int, facts: Mapping[str, Any]) -> int:
    """The number of inputs per batch: the recipe's, or as many as MOST_LOGITS allows.

    Args:
        requested: the recipe's.
        facts: the content of examples.json.
    """
    if "labels" in facts:
        return requested
    logits: int = facts["sequence_length"] * facts["vocab_size"]
    return max(1, min(requested, MOST_LOGITS // logits))


def results(
    module: nn.Module,
    split: TestSplit,
    size: int,
    device: torch.device,
    labels: int,
    tick: Callable[[int], None],
    share: Share = WHOLE,
    *,
    limits: Generation,
    collect: bool = False,
) -> Results:
    """A model's results, valid on the first rank only.

    Args:
        module: the model, on its device.
        split: the test split as the model sees it.
        size: inputs in a batch.
        device: the model's.
        labels: number of labels of a classifier, otherwise 0.
        tick: called with the number of steps that the ranks have done since the last call, of step_count() in all.
        share: this rank's share of the batches.
        limits: the recipe's limits of generation.
        collect: whether each example's answer is a result, too.
    """
    matrix_size, batches = labels if labels <= MOST_LABELS else 0, split.batch_count(size)
    scores, prompts = Scores(len(split.tokens), matrix_size, answers=collect), prompts_of(split, limits)
    with torch.inference_mode(), full_precision():
        own_batches = split.batches(size, share.rank, share.world_size)
        for start in range(0, batches, share.world_size):
            local_prediction = _predicted(
                module, split, next(own_batches, None), device, matrix_size, share, collect=collect
            )
            for prediction in share.gathered(local_prediction):
                scores.add(
                    prediction.examples, prediction.nll, prediction.correct, prediction.confidence, prediction.answers
                )
                scores.confusion += prediction.confusion
            tick(min(share.world_size, batches - start))
        inputs = split.prompt_inputs(prompts)
        completions = generated(module, inputs, prompts, size, device, tick, share)
    return {**scores.arrays(), CONFUSION: scores.confusion.astype(np.float64), COMPLETIONS: completions}


def prompts_of(split: TestSplit, limits: Generation) -> Prompts:
    """The prompts that a model continues."""
    return split.prompts.limited(limits.examples, limits.max_new_tokens)


def step_count(split: TestSplit, size: int, limits: Generation) -> int:
    """The number of steps for a model's results: one for each batch of examples, and for each token of prompts."""
    return split.batch_count(size) + generation.step_count(prompts_of(split, limits), size)


def _predicted(
    module: nn.Module,
    split: TestSplit,
    batch: Batch | None,
    device: torch.device,
    labels: int,
    share: Share,
    *,
    collect: bool,
) -> Predicted | None:
    """A model's predictions for this rank's next batch, if there is one."""
    if batch:
        return predicted(module, batch, device, labels, answers=collect)
    if share.spread:  # the other ranks wait for this rank's shard of each block
        module(torch.from_numpy(split.sample(1)).to(device))
    return None


def full_precision() -> AbstractContextManager[Any]:
    """True fp32 on GPUs: convolutions would otherwise use TF32 (10 bits of mantissa)."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


def write(folder: Path, role: str, results: Results) -> None:
    """Write a model's results into a folder, under its role."""
    np.savez_compressed(folder / results_file(role), allow_pickle=False, **results)


def read(path: Path) -> Results:
    """Read a model's results."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def by_role(role: str, results: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """A model's per-example sums under their names in per_example.npz."""
    return {f"{role}.{name}": array for name, array in results.items() if name != CONFUSION}
