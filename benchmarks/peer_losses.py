"""The losses of a small Llama beside those of other libraries: from the same weights, on the same batches, 100 steps.

    python -m benchmarks.peer_losses

Each library computes with its own model, loss, groups of weights that decay, optimiser and clipping, in one process on
the CPU, fp32. torchtitan's schedule is ours; those of transformers are a step off, so its Trainer is given ours, made
of torch's own schedulers. torchtitan's Trainer needs a GPU; its parts do not, and are called here in the order of its
train_step(). A library that is not installed is left out, and named.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from tests.ranks.pool import Ranks
from tests.ranks.train import jobs
from tests.unit.jobs.specs import training
from understudy.data.loader import IGNORED, Order, open_split
from understudy.jobs.payload import TrainingJob
from understudy.jobs.specification import JobSpec
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import HISTORY, Facts, read_facts
from understudy.models.initial import draw_weights
from understudy.recipe import Train

AGREE = 1e-5
"""How far a loss may be from another library's."""
STEPS, BATCH, VOCABULARY, LENGTH = 100, 16, 512, 64
WIDTHS = {"hidden_size": 128, "intermediate_size": 352, "max_position_embeddings": LENGTH}
COUNTS = {"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2}
LLAMA = {"type": "llama", "config": {**WIDTHS, **COUNTS}}
TRAIN = {
    "steps": STEPS,
    "batch_size": BATCH,
    "optimizer": {"learning_rate": 0.003, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95},
    "schedule": {"warmup": 10, "decay": "cosine", "final": 0.1},
}
TITAN = "uv venv peers; uv pip install -p peers torchtitan==0.3.0 transformers==5.23.0 accelerate pytest"
"""Into an environment of its own: it takes another huggingface-hub than understudy does."""

Losses = list[float]
Rate = Callable[[Optimizer, Train], LRScheduler]


def write_examples(folder: Path) -> Path:
    """Tokens that can be learned, as many as the steps take.

    Text that has to be memorised ends at a loss near 0, of which a rounding is a large share.
    """
    folder.mkdir()
    tokens = np.random.default_rng(0).integers(0, 3, STEPS * BATCH * LENGTH + 1).cumsum() % VOCABULARY
    np.save(folder / "train.tokens.npy", tokens.astype(np.int32))
    facts: Facts = {"task": "causal-lm", "vocab_size": VOCABULARY, "eos_id": 0, "sequence_length": LENGTH}
    (folder / "examples.json").write_text(json.dumps(facts))
    return folder


def initial_net(work: TrainingJob) -> Any:
    """The network of transformers that a job starts from."""
    net = build_model(describe(work.model, read_facts(work.examples), "model")).get_submodule("net")
    draw_weights(net, work.seed)
    return net


def batches(work: TrainingJob, steps: int = STEPS) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and labels of so many steps of a job, int64 (B, L)."""
    examples = open_split(work.examples, "train")
    order = Order(len(examples), work.train.batch_size, work.seed)
    for step in range(steps):
        yield examples.batch(order.batch(step))


def torch_schedule(optimizer: Optimizer, train: Train) -> LRScheduler:
    """Warm-up and cosine of a training by torch's own schedulers."""
    warmup, peak = int(train.schedule.warmup), train.optimizer.learning_rate
    rising = LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    falling = CosineAnnealingLR(optimizer, STEPS - warmup, peak * train.schedule.final)
    return SequentialLR(optimizer, [rising, falling], [warmup])


def its_schedule(optimizer: Optimizer, train: Train) -> LRScheduler:
    """The one of transformers that warms up as ours does. It decays a step earlier."""
    from transformers.optimization import get_cosine_with_min_lr_schedule_with_warmup_lr_rate as with_warmup

    warmup, final = int(train.schedule.warmup), train.schedule.final
    schedule: LRScheduler = with_warmup(optimizer, warmup, STEPS, min_lr_rate=final)
    return schedule


def trainer_losses(work: TrainingJob, rate: Rate = torch_schedule) -> Losses:
    """Those of the Trainer of transformers, as exact as it computes them: its log rounds."""
    import transformers

    recorded, train = Losses(), work.train

    class Batches(torch.utils.data.IterableDataset[dict[str, Tensor]]):
        def __iter__(self) -> Any:
            for inputs, labels in batches(work):
                yield {"input_ids": inputs, "labels": labels, "shift_labels": labels}

    class Trainer(transformers.Trainer):
        def compute_loss(self, *arguments: Any, **named: Any) -> Any:
            loss = super().compute_loss(*arguments, **named)
            recorded.append((loss[0] if isinstance(loss, tuple) else loss).item())
            return loss

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            self.lr_scheduler = rate(optimizer or self.optimizer, train)
            return self.lr_scheduler

    with tempfile.TemporaryDirectory() as folder:
        settings = trainer_settings(folder, train)
        data = {"train_dataset": Batches(), "data_collator": lambda rows: rows[0]}
        trainer = Trainer(model=initial_net(work), args=settings, **data)
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return recorded


def trainer_settings(folder: str, train: Train) -> Any:
    """Of the Trainer, for batches that come whole."""
    import transformers

    chosen = train.optimizer
    return transformers.TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
        per_device_train_batch_size=1,
        learning_rate=chosen.learning_rate,
        weight_decay=chosen.weight_decay,
        adam_beta1=chosen.beta1,
        adam_beta2=chosen.beta2,
        max_grad_norm=train.max_grad_norm or 0.0,
        remove_unused_columns=False,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )


def titan_model(net: Any) -> nn.Module:
    """A Llama of transformers as torchtitan's, with the same weights by torchtitan's own conversion."""
    from torchtitan.models.common import Embedding, Linear, RMSNorm
    from torchtitan.models.llama3.model import Llama3Model
    from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter

    its = net.config
    width, words = its.hidden_size, its.vocab_size
    config = Llama3Model.Config(
        dim=width,
        vocab_size=words,
        tok_embeddings=Embedding.Config(num_embeddings=words, embedding_dim=width),
        norm=RMSNorm.Config(normalized_shape=width, eps=its.rms_norm_eps),
        lm_head=Linear.Config(in_features=width, out_features=words),
        layers=[titan_block(its)] * its.num_hidden_layers,
    )
    model: nn.Module = config.build()
    model.load_state_dict(Llama3StateDictAdapter(config, None).from_hf(net.state_dict()))
    return model


def titan_block(its: Any) -> Any:
    """The configuration of a layer, as torchtitan's Llamas have it, of the sizes in one of transformers."""
    from torchtitan.models.common import ComplexRoPE, RMSNorm
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
    from torchtitan.models.llama3.model import Llama3TransformerBlock

    width, head = its.hidden_size, its.hidden_size // its.num_attention_heads
    norm = RMSNorm.Config(normalized_shape=width, eps=its.rms_norm_eps)
    attention = make_gqa_config(
        dim=width,
        n_heads=its.num_attention_heads,
        n_kv_heads=its.num_key_value_heads,
        wqkv_param_init={},
        wo_param_init={},
        inner_attention=ScaledDotProductAttention.Config(),  # flex, its default, has no gradients on a CPU
        rope=ComplexRoPE.Config(
            dim=head, max_seq_len=its.max_position_embeddings, theta=its.rope_parameters["rope_theta"]
        ),
        fuse_qkv=True,
    )
    inner = its.intermediate_size
    forward = make_ffn_config(dim=width, hidden_dim=inner, w1_param_init={}, w2w3_param_init={})
    return Llama3TransformerBlock.Config(attention_norm=norm, ffn_norm=norm, attention=attention, feed_forward=forward)


def titan_optimizer(train: Train, *, norms_decay: bool) -> Any:
    """The configuration of its AdamW, under which norms decay as it is shipped."""
    from torchtitan.components.optimizer import default_adamw

    chosen = train.optimizer
    settings = {"lr": chosen.learning_rate, "betas": (chosen.beta1, chosen.beta2)}
    optimizer = default_adamw(**settings, weight_decay=chosen.weight_decay)
    if not norms_decay:
        (norms,) = default_adamw(**settings, weight_decay=0.0).param_groups
        optimizer.param_groups.insert(0, replace(norms, pattern="norm"))
    return optimizer


def titan_losses(work: TrainingJob, *, norms_decay: bool = False) -> Losses:
    """Those of torchtitan's parts in the order of its train_step()."""
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.components.optimizer import LRSchedulersContainer
    from torchtitan.distributed.utils import clip_grad_norm_

    train, net, recorded = work.train, initial_net(work), Losses()
    model = titan_model(net)
    check_logits(model, net, next(batches(work))[0])
    schedule = {"warmup_steps": train.schedule.warmup, "min_lr_factor": train.schedule.final}
    optimizers = titan_optimizer(train, norms_decay=norms_decay).build(model_parts=[model])
    schedulers = LRSchedulersContainer.Config(decay_type=train.schedule.decay, **schedule).build(
        optimizers=optimizers, training_steps=STEPS
    )
    loss_of = CrossEntropyLoss.Config().build()
    for inputs, labels in batches(work):
        optimizers.zero_grad()
        loss, _ = loss_of(model(inputs), labels, (labels != IGNORED).sum())
        loss.backward()
        clip_grad_norm_(model.parameters(), train.max_grad_norm, foreach=True)
        optimizers.step()
        schedulers.step()
        recorded.append(loss.item())
    return recorded


def check_logits(model: nn.Module, net: Any, inputs: Tensor) -> None:
    """End the benchmark where two models say other things of a batch."""
    with torch.no_grad():
        apart = (model(inputs) - net(inputs).logits).abs().max().item()
    if apart > AGREE:
        raise SystemExit(f"torchtitan's model is another: its logits are {apart:.1e} apart before the first step")


Peers = dict[tuple[str, str], Callable[[TrainingJob], Losses]]
SAME: Peers = {
    ("transformers", "its Trainer"): trainer_losses,
    ("torchtitan", "its model, loss, optimiser, schedule"): titan_losses,
}
SHIPPED: Peers = {
    ("transformers", "with its cosine_warmup_with_min_lr"): lambda work: trainer_losses(work, its_schedule),
    ("torchtitan", "with its default_adamw: norms decay"): lambda work: titan_losses(work, norms_decay=True),
}
"""Libraries at their own defaults: shown, and need not agree."""


def own_losses(job: JobSpec) -> NDArray[np.float64]:
    """Those of our job, which has been run."""
    return np.array([point["loss"] for point in json.loads((job.output / HISTORY).read_text())])


def main() -> None:
    """Print how far each library's losses are from ours."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    if not find_spec("torchtitan"):
        print(f"torchtitan is not installed, and is left out. To have it: {TITAN}")
    with tempfile.TemporaryDirectory() as folder:
        examples, ranks = write_examples(Path(folder) / "examples"), Ranks(1)
        job = jobs.spec(Path(folder) / "job", examples, LLAMA, train=TRAIN)
        ranks.run(1, jobs.train_ranks, job)
        ranks.close()
        report(job)


def report(job: JobSpec) -> None:
    """The table.

    Raises:
        SystemExit: a library that does the same has other losses.
    """
    ours, disagreeing = own_losses(job), []
    print(f"ours: {ours[0]:.6f} at the first step, {ours[-1]:.6f} at the last")
    print("| library | how | apart, at most | relative, at most |\n" + "|---" * 4 + "|")
    for (library, how), losses in {**SAME, **SHIPPED}.items():
        if find_spec(library):
            theirs = np.array(losses(training(job)))
            apart, relative = np.abs(ours - theirs).max(), np.abs(ours / theirs - 1).max()
            print(f"| {library} {version(library)} | {how} | {apart:.1e} | {relative:.1e} |", flush=True)
            if (library, how) in SAME and not (apart <= AGREE and relative <= AGREE):
                disagreeing.append(library)
    if disagreeing:
        raise SystemExit(f"more than {AGREE:.0e} apart: {', '.join(disagreeing)}")


if __name__ == "__main__":
    main()
