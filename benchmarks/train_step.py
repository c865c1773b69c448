"""A training step on the CPU, logging and checkpoints on: ours, a loop written by hand, Trainer, Lightning.

    python -m benchmarks.train_step [--rounds 5]

Every contender trains the same model on the same batches with AdamW, clipped gradients and a cosine schedule, in a
process of its own, and they take turns. A step's time is that between an early and the last step, all that happens in
between included: reading the batch, logging at least twice a second, three checkpoints of model and optimiser.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

THREADS, BATCH, EXAMPLES, CLASSES, LOG_EVERY, CHECKPOINTS = 2, 64, 1280, 10, 10, 4
SIZES = {"small": {"width": 128, "depth": 2, "steps": 3000}, "large": {"width": 2048, "depth": 6, "steps": 100}}


class Perceptron(nn.Module):
    """Layers of one width; about 1 ms a step when small, over 100 ms when large."""

    def __init__(self, width: int, depth: int, num_labels: int = CLASSES) -> None:
        super().__init__()
        widths = [64, *[width] * depth]
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.GELU())]
        self.net = nn.Sequential(*layers, nn.Linear(width, num_labels))

    def forward(self, pixels: Tensor) -> Tensor:
        output: Tensor = self.net(pixels.flatten(1))
        return output


def perceptron(width: int, depth: int, num_labels: int) -> nn.Module:
    """The factory that our recipe names."""
    return Perceptron(width, depth, num_labels)


class Clock:
    """Notes when each step ended; the answer is the mean time of the steps after the first tenth."""

    def __init__(self, steps: int) -> None:
        self._first, self._last = steps // 10, steps
        self._times: dict[int, float] = {}

    def tick(self, step: int) -> None:
        """Step `step`, counted from 1, has ended."""
        if step in (self._first, self._last):
            self._times[step] = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Mean seconds per step."""
        return (self._times[self._last] - self._times[self._first]) / (self._last - self._first)


def examples() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images uint8 (N, 1, 8, 8) and labels int64 (N,)."""
    random = np.random.default_rng(0)
    return random.integers(0, 256, (EXAMPLES, 1, 8, 8), dtype=np.uint8), random.integers(0, CLASSES, EXAMPLES)


def by_hand(size: dict[str, int], folder: Path) -> float:
    """The loop that one would write oneself."""
    clock, steps = Clock(size["steps"]), size["steps"]
    images, labels = (torch.from_numpy(array) for array in examples())
    model = Perceptron(size["width"], size["depth"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    with (folder / "log.jsonl").open("w") as log:
        for step in range(steps):
            if step % (EXAMPLES // BATCH) == 0:
                order = torch.randperm(EXAMPLES)
            chosen = order[step * BATCH % EXAMPLES :][:BATCH]
            loss = nn.functional.cross_entropy(model(images[chosen] / 255), labels[chosen])
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if (step + 1) % LOG_EVERY == 0:
                log.write(json.dumps({"step": step + 1, "loss": loss.item(), "norm": norm.item()}) + "\n")
            clock.tick(step + 1)
            if (step + 1) % (steps // CHECKPOINTS) == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"{step}.pt")
    return clock.seconds


def ours(size: dict[str, int], folder: Path) -> float:
    """Understudy's loop, as a job runs it."""
    from understudy.jobs.payload import TrainingJob
    from understudy.recipe import FactoryModel, Train
    from understudy.recipe.objectives import without_teacher
    from understudy.train.job import Callbacks, run
    from understudy.train.reports import Report
    from understudy.train.resources import RankResources

    images, labels = examples()
    np.save(folder / "train.images.npy", images)
    np.save(folder / "train.labels.npy", labels)
    facts = {"task": "image-classification", "labels": [str(label) for label in range(CLASSES)]}
    shape = {"image": {"size": 8, "channels": 1}, "mean": [0.0], "std": [1.0]}
    (folder / "examples.json").write_text(json.dumps({**facts, **shape}))
    work = folder / "work"
    work.mkdir()
    reports: list[Report] = []
    job = TrainingJob(
        learner="teacher",
        path="teacher",
        model=FactoryModel(factory="benchmarks.train_step:perceptron", kwargs={k: size[k] for k in ("width", "depth")}),
        train=Train(
            steps=size["steps"], batch_size=BATCH, precision="fp32", checkpoint_every=size["steps"] // CHECKPOINTS
        ),
        objectives=without_teacher(),
        seed=0,
        examples=folder,
        initial=None,
    )
    callbacks = Callbacks(
        heartbeat=lambda phase, step: None,
        must_stop=lambda: False,
        begin_attempt=lambda world_size: "",
        join_attempt=lambda attempt: work,
        report=reports.append,
    )
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    run(job, RankResources(1, THREADS, "cpu", "resources.teacher"), callbacks)
    first = next(report for report in reports if report.step >= size["steps"] // 10)
    return (reports[-1].time - first.time) / (reports[-1].step - first.step)


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    """The examples as the libraries' loaders want them."""

    def __init__(self) -> None:
        images, labels = examples()
        self._images, self._labels = torch.from_numpy(images), torch.from_numpy(labels)

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixels": self._images[index] / 255, "labels": self._labels[index]}


def trainer(size: dict[str, int], folder: Path) -> float:
    """The Trainer of transformers."""
    import transformers

    clock = Clock(size["steps"])

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Perceptron(size["width"], size["depth"])

        def forward(self, pixels: Tensor, labels: Tensor) -> Any:
            logits = self.model(pixels)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Tick(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.tick(state.global_step)

    settings = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=size["steps"],
        per_device_train_batch_size=BATCH,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        optim="adamw_torch_fused",
        logging_steps=LOG_EVERY,
        save_steps=size["steps"] // CHECKPOINTS,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    transformers.Trainer(model=Model(), args=settings, train_dataset=Rows(), callbacks=[Tick()]).train()
    return clock.seconds


def lightning(size: dict[str, int], folder: Path) -> float:
    """Lightning's Trainer."""
    import lightning as lit
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    clock, steps = Clock(size["steps"]), size["steps"]

    class Module(lit.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Perceptron(size["width"], size["depth"])

        def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
            loss = nn.functional.cross_entropy(self.model(batch["pixels"]), batch["labels"])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)
            schedule = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda at: 0.5 * (1 + math.cos(math.pi * at / steps))
            )
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    class Tick(Callback):
        def on_train_batch_end(self, owner: Any, *args: Any) -> None:
            clock.tick(owner.global_step)

    saved = ModelCheckpoint(dirpath=folder, every_n_train_steps=steps // CHECKPOINTS, save_top_k=-1)
    runner = lit.Trainer(
        max_steps=steps,
        accelerator="cpu",
        gradient_clip_val=1.0,
        log_every_n_steps=LOG_EVERY,
        logger=CSVLogger(folder),
        callbacks=[saved, Tick()],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    runner.fit(Module(), torch.utils.data.DataLoader(Rows(), batch_size=BATCH, shuffle=True))
    return clock.seconds


CONTENDERS: dict[str, Callable[[dict[str, int], Path], float]] = {
    "by hand": by_hand,
    "understudy": ours,
    "Trainer": trainer,
    "Lightning": lightning,
}


def measure_one(name: str, size: str) -> float:
    """Seconds per step of one contender in a new process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.train_step", "--one", name, "--size", size]
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout.split()[-1])


def main() -> None:
    """Take turns, and print each contender's time and its ratio to the loop written by hand, round by round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", choices=CONTENDERS)
    parser.add_argument("--size", choices=SIZES)
    options = parser.parse_args()
    if options.one:
        torch.set_num_threads(THREADS)
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            print(CONTENDERS[options.one](SIZES[options.size], Path(folder)))
        return
    print("| model | contender | ms a step, min / median | times the loop by hand, min / median |\n|---|---|---|---|")
    for size in SIZES:
        rounds = [{name: measure_one(name, size) for name in CONTENDERS} for _ in range(options.rounds)]
        for name in CONTENDERS:
            times = [1000 * durations[name] for durations in rounds]
            ratios = [durations[name] / durations["by hand"] for durations in rounds]
            print(
                f"| {size} | {name} | {min(times):.2f} / {statistics.median(times):.2f} "
                f"| {min(ratios):.2f} / {statistics.median(ratios):.2f} |"
            )


if __name__ == "__main__":
    main()
