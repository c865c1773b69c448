"""Pretrained models whose vocabulary was padded train as those without padded rows, under strategies that split it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_parity import DISTILL, column, curve, weights
from understudy.models import pretrained
from understudy.recipe import PretrainedModel

TOKENS, FILL = 50, 3.0
VOCABULARY = ("model.embed_tokens.weight", "lm_head.weight")


def fetched(folder: Path, examples: Path, rows: int, seed: int) -> tuple[dict[str, Any], Path]:
    """A model's section of the recipe and its files; the first 50 rows are the same for any number of rows."""
    torch.manual_seed(seed)
    logging.disable_progress_bar()
    config = dict(jobs.LLAMA["config"], bos_token_id=0, eos_token_id=0)
    real = LlamaForCausalLM(LlamaConfig(**config, vocab_size=TOKENS))
    net = LlamaForCausalLM(LlamaConfig(**config, vocab_size=rows))
    with torch.no_grad():
        for parameter, values in zip(net.parameters(), real.parameters(), strict=True):
            parameter[: len(values)] = values
            parameter[len(values) :] = FILL
    net.save_pretrained(folder / "source")
    (folder / "files").mkdir()
    model = PretrainedModel(pretrained=str(folder / "source"))
    pretrained.fetch(model, examples, folder / "files", "student.model")
    return {"pretrained": model.pretrained}, folder / "files"


@pytest.mark.parametrize(
    ("strategy", "processes"), tiers([("tp", 2), ("fsdp", 2)], [("pp", 2), ({"dp_shard": 2, "tp": 2}, 4)])
)
def test_padded_rows_change_no_loss_and_stay_as_they_are(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int
) -> None:
    """Under tp, the processes' parts of the vocabulary are other rows than without padding."""
    finished = []
    for name, rows, teacher_rows in (("exact", TOKENS, TOKENS), ("padded", 64, 128)):
        model, initial = fetched(tmp_path / name, text_examples, rows, seed=0)
        teacher_model, teacher = fetched(tmp_path / f"{name}-teacher", text_examples, teacher_rows, seed=1)
        train: dict[str, Any] = {"optimizer": {**jobs.TRAIN["optimizer"], "weight_decay": 0.0}}
        train["gradient_accumulation_steps"] = 2  # a stage needs two
        changes: dict[str, Any] = {"initial": str(initial), "objectives": DISTILL}
        changes |= {"teacher": str(teacher), "teacher_model": teacher_model}
        if name == "padded":
            train["strategy"] = strategy
        job = jobs.spec(
            tmp_path / f"{name}-job", text_examples, model, processes if name == "padded" else 1, train=train, **changes
        )
        if name == "padded":
            ranks.run(processes, train_ranks, job)
        else:
            train_alone(ranks, job)
        finished.append(job)
    alone, spread = finished
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose(column(curve(spread), name), column(curve(alone), name), rtol=1e-5, atol=1e-5)
    exact, padded = weights(alone), weights(spread)
    for name in VOCABULARY:
        torch.testing.assert_close(padded[name][:TOKENS], exact[name], rtol=1e-3, atol=2e-4)
        assert (padded[name][TOKENS:] == FILL).all(), name
        assert len(padded[name]) == 64
