import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.jobs.specs import job_spec
from understudy.errors import Fenced
from understudy.jobs.specification import JobSpec
from understudy.steps.step import Work
from understudy.steps.watch import Watch


class Watched:
    """A training step that records its progress reports."""

    def __init__(self, folder: Path) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.spec: JobSpec = job_spec(folder)
        self.notes: list[str] = []
        self.run, self.step = SimpleNamespace(id="digits-1", stop_requested=False, note=self.notes.append), "teacher"
        self.lease = SimpleNamespace(check=lambda: None)
        self.recipe = SimpleNamespace(name="digits", task="causal-lm")

    def report_resumed(self, training_step: int) -> None:
        self.told.append((training_step,))

    def progress(self, done: float, total: float, unit: str = "", detail: str = "") -> None:
        self.told.append((done, total, detail))

    def watch(self) -> Watch:
        return Watch(cast(Work, self), self.spec)

    def write(self, text: str) -> None:
        with self.spec.metrics.open("a") as stream:
            stream.write(text)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def line(step: int) -> str:
    return json.dumps({"step": step, "steps": 9, "loss": 0.25, "rate": 1234.0}) + "\n"


def test_the_last_whole_line_is_how_far_the_job_is_and_is_told_once(watched: Watched) -> None:
    watch = watched.watch()
    watched.write(line(1) + line(2))
    watch()
    watch()
    assert watched.told == [(0, 0, "starting"), (2, 9, "loss 0.2500, 1,234 tokens/s")]
    [loss] = [family.samples[0] for family in watch.metrics.collect() if family.name == "understudy_job_loss"]
    assert (loss.value, loss.labels) == (0.25, {"run": "digits-1", "step": "teacher"})
    watched.write('{"step": 3, "st')
    watch()
    assert len(watched.told) == 2, "a line that is being written says nothing yet"


def test_that_cores_are_short_is_noted_once_and_in_words(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watch = watched.watch()
    for step, waiting in enumerate((None, 0.0, 0.24, 0.31, 0.6), 1):
        watched.write(json.dumps({"step": step, "steps": 9, "waiting": waiting}) + "\n")
        watch()
    [note] = watched.notes
    assert note.startswith("teacher: waited for a core 31 % of the time in which it could have computed")
    assert ("resources.teacher.threads" in note) == (watched.spec.threads > 1)
    assert caplog.messages == [note]


def test_a_job_that_has_a_checkpoint_goes_on_from_it(watched: Watched) -> None:
    for step in (10, 9, "x", "", "\u00b2"):
        (watched.spec.work / "checkpoints" / f"step-{step}").mkdir(parents=True)
    watched.watch()
    assert watched.told == [(10,), (0, 0, "resuming from step 10")]


def test_a_wish_to_stop_reaches_the_ranks(watched: Watched) -> None:
    watch = watched.watch()
    watch()
    assert not watched.spec.stop_file.exists()
    watched.run.stop_requested = True
    watch()
    assert watched.spec.stop_file.exists()


def test_a_lost_lease_ends_the_watch(watched: Watched) -> None:
    def lost() -> None:
        raise Fenced("another run has taken this step over")

    watch = watched.watch()
    watched.lease.check = lost
    with pytest.raises(Fenced):
        watch()


def test_an_evaluation_says_how_many_batches_are_done(watched: Watched) -> None:
    watch = watched.watch()
    watched.write(json.dumps({"step": 3, "steps": 9, "unit": "batches"}) + "\n")
    watch()
    assert watched.told[-1] == (3, 9, "")


@pytest.mark.parametrize(
    "wrong",
    [
        '{"step": 3, "steps": 9, "loss": "\\u001b[2J", "rate": 1}',
        '{"step": 3}',
        "[]",
        '{"step": 3, "steps": 9, "unit": "\\n"}',
    ],
)
def test_whatever_else_a_rank_writes_ends_no_launcher(watched: Watched, wrong: str) -> None:
    watch = watched.watch()
    watched.write(wrong + "\n")
    watch()
    assert len(watched.told) == 1
