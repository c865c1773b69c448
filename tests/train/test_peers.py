"""A small Llama loses what it loses in the Trainer of transformers: same weights, same batches, same schedule."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.jobs.specs import training
from tests.train import jobs
from tests.train.jobs import train_ranks
from understudy.data.loader import Order, open_split
from understudy.jobs.specification import JobSpec
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import read_facts
from understudy.models.initial import draw_weights
from understudy.train.optimizers import learning_rate

STEPS = 100


def losses(job: JobSpec) -> list[float]:
    """Of the Trainer, as exact as it computes them: its log rounds."""
    import transformers

    work = training(job)
    net = build_model(describe(work.model, read_facts(Path(work.examples)), "model")).get_submodule("net")
    draw_weights(net, work.seed)
    examples, found = open_split(Path(work.examples), "train"), list[float]()
    order = Order(len(examples), work.train.batch_size, work.seed)

    class Batches(torch.utils.data.IterableDataset[dict[str, Tensor]]):
        def __iter__(self) -> Any:
            for step in range(STEPS):
                inputs, labels = examples.batch(order.batch(step))
                yield {"input_ids": inputs, "labels": labels, "shift_labels": labels}

    class Trainer(transformers.Trainer):
        def compute_loss(self, *given: Any, **named: Any) -> Any:
            loss = super().compute_loss(*given, **named)
            found.append((loss[0] if isinstance(loss, tuple) else loss).item())
            return loss

    chosen = work.train.optimizer
    matrices = [weight for weight in net.parameters() if weight.ndim > 1]
    vectors = [weight for weight in net.parameters() if weight.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": chosen.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=(chosen.beta1, chosen.beta2))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(min(step, STEPS - 1), STEPS, chosen.learning_rate, work.train.schedule)
    )
    settings = transformers.TrainingArguments(
        output_dir=job.folder,
        max_steps=STEPS,
        per_device_train_batch_size=1,
        max_grad_norm=work.train.max_grad_norm or 0.0,
        remove_unused_columns=False,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(
        model=net,
        args=settings,
        train_dataset=Batches(),
        data_collator=lambda rows: rows[0],
        optimizers=(optimizer, schedule),
    ).train()
    return found


def test_the_trainer_of_transformers_loses_the_same(ranks: Any, tmp_path: Path, text_examples: Path) -> None:
    train = {"steps": STEPS, "schedule": {"warmup": 10, "decay": "cosine", "final": 0.1}}
    job = jobs.spec(tmp_path / "job", text_examples, jobs.LLAMA, train=train)
    ranks.run(1, train_ranks, job)
    ours = [point["loss"] for point in json.loads((job.output / "history.json").read_text())]
    np.testing.assert_allclose(ours, losses(job), rtol=1e-5)
