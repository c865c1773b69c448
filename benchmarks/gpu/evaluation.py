"""Tokens a second of an evaluation, in fp32 and in bf16, beside a plain loop."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.gpu.sizes import Sizes
from benchmarks.gpu.steps import net
from understudy.data.measured import Documents
from understudy.evaluate import answers
from understudy.models.facts import Facts
from understudy.models.tasks import task_model
from understudy.recipe import Generation

WINDOWS = 64
HEAD = "| evaluation | tokens a second | nats a token |\n" + "|---" * 3 + "|"


def documents(sizes: Sizes, folder: Path) -> Documents:
    """A test split of random documents, each a window long."""
    words = np.random.default_rng(0).integers(0, sizes.vocabulary, WINDOWS * sizes.length)
    np.save(folder / "test.tokens.npy", words.astype(np.int32))
    np.save(folder / "test.bytes.npy", np.full(WINDOWS, sizes.length, np.int64))
    np.save(folder / "test.offsets.npy", np.arange(WINDOWS + 1) * sizes.length)
    return Documents(folder, sizes.length, 0, sizes.length)


def ours(model: nn.Module, split: Documents, sizes: Sizes) -> float:
    """As the evaluate step answers the test split."""
    described = {"task": "causal-lm", "sequence_length": sizes.length, "vocab_size": sizes.vocabulary}
    size = answers.batch_size(64, described)
    results = answers.results(model, split, size, torch.device(sizes.device), 0, lambda _: None, limits=Generation())
    return float(results["nll"].sum() / split.tokens.sum())


def plain(model: nn.Module, split: Documents, sizes: Sizes) -> float:
    """A loop as one writes it, one sequence at a time."""
    total = 0.0
    with torch.inference_mode():
        for batch in split.batches(1):
            inputs, targets = (torch.from_numpy(part).to(sizes.device) for part in (batch.inputs, batch.targets))
            logits = model(inputs).logits.float()
            total += functional.cross_entropy(logits[0], targets[0], reduction="sum").item()
    return total / int(split.tokens.sum())


def rows(sizes: Sizes, folder: Path) -> Iterator[str]:
    """The table, a line at a time."""
    yield HEAD
    split = documents(sizes, folder)
    facts: Facts = {
        "task": "causal-lm",
        "vocab_size": sizes.vocabulary,
        "eos_id": 0,
        "sequence_length": sizes.length,
    }
    torch.manual_seed(0)
    model = task_model(net(sizes.student, sizes), facts).eval()
    ways: tuple[tuple[str, Callable[..., float]], ...] = (("ours", ours), ("a plain loop", plain))
    for kind in (torch.float32, torch.bfloat16):
        model.to(kind)
        for name, function in ways:
            fastest = math.inf
            for _ in range(2):
                begun = time.perf_counter()
                nats = function(model, split, sizes)
                fastest = min(fastest, time.perf_counter() - begun)
            yield f"| {str(kind).removeprefix('torch.')}: {name} | {split.tokens.sum() / fastest:,.0f} | {nats:.5f} |"
