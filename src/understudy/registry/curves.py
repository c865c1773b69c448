"""Training curves for MLflow: points appended to a file by a job, or stored with a finished model."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from understudy.jobs.files import opened
from understudy.recipe.tasks import load
from understudy.registry.tracking import TrackingServer, Value

Point = Mapping[str, float]
"""A training step and its measurements."""

LARGEST = 2**53  # bound on steps and on integer measurements
BATCH = 1000  # metrics; MLflow's limit per request
MOST = 16 * 2**20  # bytes per read: a rank may leave a file of any size
VALIDATED = ("validation_loss", "validation_accuracy")
GUARDED = {"skipped": "skipped_steps", "passed_over": "batches_passed_over"}
"""A guard's counters and their names in MLflow; both count from the training's first step."""


def unreported(point: Point) -> Point:
    """The values of a finished curve's point that were not reported during the training."""
    return {name: number for name, number in point.items() if name in ("step", *VALIDATED, *GUARDED)}


class Tail:
    """Reads the points appended to a JSONL file since the last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Point]:
        """New points; an incomplete line is left for the next read."""
        try:
            with opened(self._path) as stream:
                if stream.seek(0, 2) < self._offset:
                    self._offset = 0
                stream.seek(self._offset)
                text = stream.read(MOST)
        except FileNotFoundError:
            return []
        complete_lines = text[: text.rfind(b"\n") + 1]
        if not complete_lines and len(text) == MOST:  # no valid line is as long
            complete_lines = text
        self._offset += len(complete_lines)
        return list(_parsed(complete_lines.splitlines()))


def _parsed(lines: Iterable[bytes]) -> Iterator[Point]:
    for line in lines:
        try:
            point = json.loads(line)
        except (ValueError, RecursionError):
            continue  # a killed writer's half line joined with its successor's; the model's history has the point
        yield from points_of([point])


def points_of(values: Iterable[object]) -> Iterator[Point]:
    """The points among parsed JSON values, without missing measurements (null)."""
    for value in values:
        measured = value.items() if isinstance(value, dict) else ()
        point = {name: number for name, number in measured if isinstance(number, float) or _fits(number)}
        if _fits(point.get("step")) and _fits(point.get("time", 0)):  # ranks run code that may write anything
            yield point


def _fits(number: object) -> bool:
    """Whether MLflow accepts a value as a step or a time."""
    return isinstance(number, int | float) and abs(number) < LARGEST


def send(server: TrackingServer, run_id: str, task: str, points: Iterable[Point]) -> None:
    """Log points in batches; the values of a step are never split."""
    batch: list[Value] = []
    for point in points:
        metrics = _metrics(point, task)
        if len(batch) + len(metrics) > BATCH:
            server.log(run_id, batch)
            batch = []
        batch += metrics
    if batch:
        server.log(run_id, batch)


def _metrics(point: Point, task: str) -> list[Value]:
    names = {"loss": "loss", "learning_rate": "learning_rate", "grad_norm": "grad_norm", "memory": "memory_bytes"}
    names |= {"rate": f"{load(task).TARGETS}_per_second", **{name: name for name in VALIDATED}, **GUARDED}
    at = int(1000 * (point.get("time") or time.time()))
    return [Value(name, float(point[key]), at, int(point["step"])) for key, name in names.items() if key in point]
