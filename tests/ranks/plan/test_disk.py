"""The planned disk space of trainings, compared with the folders of real ones."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ranks.plan.measured import LABELS, llama, text_examples
from tests.ranks.train.jobs import spec, train_ranks
from tests.unit.jobs.specs import training
from tests.unit.plan.test_depth import llama as llama_of
from tests.unit.plan.test_depth import planned as planned_of
from understudy.models.describe import describe
from understudy.models.weight_files import weight_bytes
from understudy.plan.disk import Disk, disk
from understudy.plan.estimate import Estimate
from understudy.plan.job import Job
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.planned import Planned
from understudy.plan.trace import traces
from understudy.recipe import Degrees, degrees

LENGTH = 32


def estimate(planned: Planned, mesh_degrees: Degrees) -> Estimate:
    fullest = max(traces(planned, mesh_degrees, "cpu", torch.float32), key=lambda rank: rank.peak.bytes)
    return Estimate(mesh_degrees, fullest, 0.0, fits=True, compute=0.0, communication=0.0, bubble=0.0, step=0.0)


ROWS: list[tuple[str, dict[str, Any]]] = [
    ("fsdp", {}),
    ("ddp", {"average": 0.9, "optimizer": {"name": "sgd", "momentum": 0.9}}),
    ("ddp", {"diloco": {"every": 2}}),
    ("pp", {"gradient_accumulation_steps": 2}),
    ("tp", {}),
]


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "train"), ROWS)
def test_a_checkpoint_and_a_model_are_as_large_as_real_ones(
    ranks: Any, tmp_path: Path, strategy: str, train: dict[str, Any]
) -> None:
    examples, facts = text_examples(tmp_path / "examples", 4096, LENGTH)
    settings = {"steps": 4, "batch_size": 8, "strategy": strategy, "checkpoint_every": 2, **train}
    job = spec(tmp_path / "job", examples, llama(256, 2, LENGTH), 2, train=settings, objectives=LABELS)
    ranks.run(2, train_ranks, job)
    work = training(job)
    model = describe(work.model, facts, "teacher.model")
    planned = Planned(work, model, {}, PlaceholderExamples(facts, 64))
    needed = disk(Job("teacher", "teacher", planned, 1, 2, None), estimate(planned, degrees(strategy, 1, 2)))  # type: ignore[arg-type]
    checkpoint_bytes = sum(path.stat().st_size for path in (Path(job.folder) / "checkpoints" / "step-4").iterdir())
    assert needed.checkpoint == pytest.approx(checkpoint_bytes, rel=0.02)
    assert needed.model == pytest.approx(weight_bytes(job.output), rel=0.01)
    assert needed.checkpoints == len(list((Path(job.folder) / "checkpoints").glob("step-*"))) == 2


@pytest.mark.parametrize(
    ("train", "count"),
    [
        ({"steps": 1000}, 3),
        ({"steps": 150}, 2),
        ({"steps": 100}, 1),
        ({"steps": 100, "guard": {}}, 2),
        ({"steps": None, "epochs": 1}, 3),
    ],
)
def test_three_checkpoints_are_there_at_most(train: dict[str, Any], count: int) -> None:
    planned = planned_of(llama_of(1), **train)
    needed = disk(Job("teacher", "teacher", planned, 1, 1, None), estimate(planned, Degrees()))
    assert (needed.checkpoints, needed.best) == (count, 0)


def test_the_best_weights_are_beside_them() -> None:
    planned = planned_of(llama_of(1), validate_every=1, keep_best=True)
    needed = disk(Job("teacher", "teacher", planned, 1, 1, None), estimate(planned, Degrees()))
    assert needed.best == needed.model


@pytest.mark.parametrize(
    ("needed", "peak"),
    [
        (Disk(model=10, checkpoint=30, checkpoints=3, best=0), 90),
        (Disk(model=10, checkpoint=30, checkpoints=1, best=0), 50),  # the model twice, while it is copied
        (Disk(model=10, checkpoint=10, checkpoints=3, best=0), 40),
        (Disk(model=10, checkpoint=30, checkpoints=3, best=10), 110),  # new weights come before old ones go
    ],
)
def test_the_most_is_while_it_writes_or_while_it_ends(needed: Disk, peak: int) -> None:
    assert needed.most == peak
