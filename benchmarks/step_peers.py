"""The loops of the usual libraries, for steps.py: each as its manual has it, with the settings of the loop by hand."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.step_work import BATCH, LOG_EVERY, RANKS, RATE, Work


def trainer(work: Work) -> None:
    """The Trainer of transformers."""
    import transformers
    from torch.utils.data import SequentialSampler

    taught = work.taught("Trainer")

    class Own(transformers.Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return SequentialSampler(work.rows())

        def compute_loss(self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Any:
            return model(**inputs)

    settings = transformers.TrainingArguments(
        output_dir=str(work.folder / "trainer"),
        max_steps=work.steps,
        per_device_train_batch_size=BATCH // RANKS,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        logging_steps=LOG_EVERY,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    Own(model=taught, args=settings, train_dataset=work.rows()).train()


def accelerate(work: Work) -> None:
    """A loop of one's own around Accelerate."""
    from accelerate import Accelerator

    runner = Accelerator(cpu=True)
    taught = work.taught("Accelerate")
    optimizer = torch.optim.AdamW(taught.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    model, optimizer, loader = runner.prepare(taught, optimizer, DataLoader(work.rows(), BATCH // RANKS))
    for step, batch in enumerate(loader, 1):
        loss = model(**batch)
        runner.backward(loss)
        runner.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % LOG_EVERY == 0:
            loss.item()


def lightning(work: Work) -> None:
    """Lightning's Trainer."""
    import lightning as lit
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
    from torch.distributed.fsdp import fully_shard

    class Module(lit.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = work.taught("Lightning")

        def configure_model(self) -> None:
            if work.strategy == "fsdp":
                for part in (*self.model.blocks, self.model):
                    fully_shard(part, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
            loss: Tensor = self.model(**batch)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=RATE, weight_decay=0.0, fused=True)

    strategy: Any = DDPStrategy(process_group_backend="gloo", gradient_as_bucket_view=True)
    if work.strategy == "fsdp":
        strategy = ModelParallelStrategy(data_parallel_size=RANKS, tensor_parallel_size=1, process_group_backend="gloo")
    runner = lit.Trainer(
        max_steps=work.steps,
        accelerator="cpu",
        devices=RANKS,
        strategy=strategy,
        gradient_clip_val=1.0,
        log_every_n_steps=LOG_EVERY,
        logger=CSVLogger(work.folder / "lightning"),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # its own shuffles after any loader
    )
    rows = work.rows()
    runner.fit(Module(), DataLoader(rows, BATCH // RANKS, sampler=DistributedSampler(rows, shuffle=False)))


def deepspeed(work: Work) -> None:
    """DeepSpeed's engine: stage 0 of ZeRO for ddp, stage 3 for fsdp."""
    import deepspeed as ds

    taught = work.taught("DeepSpeed")
    optimizer = torch.optim.AdamW(taught.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    settings = {
        "train_micro_batch_size_per_gpu": BATCH // RANKS,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 3 if work.strategy == "fsdp" else 0},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": LOG_EVERY,
    }
    ds.init_distributed(dist_backend="gloo")
    engine, *_ = ds.initialize(model=taught, optimizer=optimizer, config=settings)
    for inputs, labels in work.rows().batches(torch.distributed.get_rank()):
        loss = engine(inputs, labels)
        engine.backward(loss)
        engine.step()


PEERS = {"Trainer": trainer, "Accelerate": accelerate, "Lightning": lightning, "DeepSpeed": deepspeed}
"""A loop by its library's name."""
