"""A small Llama has the losses of the Trainer of transformers: same weights, same batches, same schedule."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peer_losses import TRAIN, own_losses, trainer_losses
from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_ranks
from tests.unit.jobs.specs import training


def test_the_trainer_of_transformers_loses_the_same(ranks: Any, tmp_path: Path, text_examples: Path) -> None:
    """One window is short: its filling has no targets. torchtitan is beside it in benchmarks/peer_losses.py."""
    job = jobs.spec(tmp_path / "job", text_examples, jobs.LLAMA, train=TRAIN)
    ranks.run(1, train_ranks, job)
    np.testing.assert_allclose(own_losses(job), trainer_losses(training(job)), rtol=1e-5)
