"""Job specifications for tests: small models, few steps."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.ranks.pool import Ranks
from tests.unit.jobs.specs import job_spec, training
from understudy.jobs.specification import JobSpec

Row = TypeVar("Row", bound=tuple[Any, ...])

VIT = {
    "type": "vit",
    "config": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "patch_size": 4,
    },
}
GPT = {"type": "gpt2", "config": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}}
LLAMA = {
    "type": "llama",
    "config": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 16,
    },
}
BERT = {
    "type": "bert",
    "config": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 16,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

TRAIN = {
    "steps": 9,
    "epochs": None,
    "batch_size": 16,
    "gradient_accumulation_steps": 1,
    "optimizer": {
        "name": "adamw",
        "learning_rate": 0.003,
        "weight_decay": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "momentum": 0.9,
    },
    "schedule": {"warmup": 2, "decay": "cosine", "final": 0.1},
    "max_grad_norm": 1.0,
    "precision": "fp32",
    "strategy": "single",
    "checkpoint_every": 100,
}


def spec(folder: Path, examples: Path, model: dict[str, Any], processes: int = 1, **changes: Any) -> JobSpec:
    """A job in a new folder; `train` changes single settings, anything else a field of the specification."""
    folder.mkdir(parents=True, exist_ok=True)
    train = {**TRAIN, **changes.pop("train", {})}
    return job_spec(
        folder,
        examples=Path(examples),
        model=model,
        train=train,
        resources={"processes": processes},
        **{"seed": 1, "threads": 1, "teacher_model": model, **changes},
    )


def tiers(first: Sequence[Row], rarer: Sequence[Row]) -> list[Any]:
    """Rows of a parametrised test: those that always run, and those of `make test-full` alone."""
    return [*first, *(pytest.param(*row, marks=pytest.mark.full) for row in rarer)]


def matrix(*factors: Sequence[Any]) -> list[Any]:
    """Rows of a parametrised test, a value of each factor: some always run, so that each two values of two factors meet
    in one of them; the others run in `make test-full` alone.
    """
    rows = list(product(*(range(len(factor)) for factor in factors)))
    pairs = {row: set(combinations(enumerate(row), 2)) for row in rows}
    uncovered, first = set().union(*pairs.values()), list[tuple[int, ...]]()
    while uncovered:
        best = max(rows, key=lambda row: len(pairs[row] & uncovered))
        first.append(best)
        uncovered -= pairs[best]

    def values(row: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(factor[index] for factor, index in zip(factors, row, strict=True))

    return tiers([values(row) for row in first], [values(row) for row in rows if row not in first])


def train_ranks(job: JobSpec) -> None:
    """The work of one rank of the job."""
    from understudy.agent.heartbeat import HeartbeatWriter
    from understudy.agent.surroundings import Surroundings
    from understudy.agent.training import train

    train(job, training(job), Surroundings(job, HeartbeatWriter(job, int(os.environ["RANK"]))))


TRAINED: dict[str, JobSpec] = {}


def train_alone(ranks: Ranks, job: JobSpec) -> None:
    """Train in one process, as the reference of others; a configuration that was trained before is copied."""
    configuration = repr(replace(job, folder="", logs=""))
    if configuration not in TRAINED:
        ranks.run(1, train_ranks, job)
        TRAINED[configuration] = job
    else:
        shutil.copytree(TRAINED[configuration].folder, job.folder, dirs_exist_ok=True)
