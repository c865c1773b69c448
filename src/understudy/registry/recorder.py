"""A pipeline run in MLflow while it goes on: one parent run, and below it a nested run for each step that has curves.

Whichever process needs a run first makes it, under a lease, and leaves its id in the run folder for the others. A
server that does not answer never stops a training: what it missed is sent when the student is registered.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NotRequired, TypedDict

from understudy.errors import DONE, REJECTED, STOPPED, Fenced, Stopped, UnderstudyError
from understudy.recipe import Recipe
from understudy.recipe.file import completed
from understudy.registry.client import server_at
from understudy.registry.curves import Point, Tail, send
from understudy.registry.evidence import intent
from understudy.registry.names import NOTE, PARENT, RUN, STEP
from understudy.registry.params import log_params
from understudy.registry.server import identity, public_uri
from understudy.registry.tracking import TrackingServer
from understudy.store import Run, Store
from understudy.store import lease as leases
from understudy.store.files import read_json, write_json

EVERY = 1.0  # seconds between two looks at the metrics file
RETRY = 30.0  # seconds until a server that failed is asked again
PATIENCE = 30.0  # seconds that the end of a training waits for its last points to arrive
HURRY = 1.0  # seconds that the last points get when this process has to go and the training goes on
LEASE = 30.0  # seconds
PARENT_RUN, TASK_RUN = "mlflow.parentRunId", "MLFLOW_RUN_ID"
STATUS = {DONE: "FINISHED", REJECTED: "FINISHED", STOPPED: "KILLED"}
"""MLflow's word for a run that ended with an exit code; of any other it is FAILED."""


class Record(TypedDict):
    """The content of mlflow.json in a run's folder, and of mlflow/STEP.json."""

    server: str
    """Its identity."""
    experiment_id: str
    run_id: str
    closed: NotRequired[bool]
    """Of mlflow.json: nothing is left open in MLflow."""


class Recorder:
    """One pipeline run's record in MLflow.

    Attributes:
        problem: why the last points could not be sent; None when they were.
    """

    def __init__(self, run: Run, uri: str, experiment: str, tags: Mapping[str, str]) -> None:
        self.run = run
        self.problem: str | None = None
        self.uri, self._experiment, self._tags = uri, experiment, dict(tags)

    @contextmanager
    def follow(self, step: str, metrics_file: Path) -> Iterator[None]:
        """Send the points that a training appends to a JSONL file to the step's nested run, while the body runs.

        How the body ends is how the nested run ends; a failure ends the parent too.
        """
        follower, patience = _Follower(self, step, Tail(metrics_file)), PATIENCE
        follower.start()
        try:
            yield
            follower.status = "FINISHED"
        except (Stopped, KeyboardInterrupt):
            follower.status = "KILLED"
            raise
        except (SystemExit, Fenced):  # the training goes on, watched by somebody else
            follower.status, patience = None, HURRY
            raise
        finally:
            follower.ended.set()
            follower.join(patience)
            if follower.is_alive():
                self.problem = f"{public_uri(self.uri)}: MLflow took more than {patience:.0f} s for the last points"

    def open(self, server: TrackingServer, step: str = PARENT) -> str:
        """The id of a step's nested run, or of the parent run; it is made when it is not there, and is running now."""
        path = self.run.folder / ("mlflow.json" if step == PARENT else f"mlflow/{step}.json")
        parent = None if step == PARENT else self.open(server)
        if found := read_json(path):
            server.reopen(found["run_id"])
            if found.pop("closed", False):
                write_json(path, found)
            return str(found["run_id"])
        lease = leases.wait_for(self.run.folder / "work", f"mlflow-{step}", LEASE, give_up=lambda: False)
        assert lease is not None
        try:
            return self._made(server, step, parent, path)
        finally:
            lease.finish()

    def _made(self, server: TrackingServer, step: str, parent: str | None, path: Path) -> str:
        """Make a run, or take the one that another process made meanwhile, or died over before it wrote it down."""
        if found := read_json(path):
            return str(found["run_id"])
        above = parent or outer_run(server)
        place = server.experiment_of(above) if above else server.experiment(self._experiment)
        same = server.runs([place], f"tags.`{RUN}` = '{self.run.id}' and tags.`{STEP}` = '{step}'")
        if same:
            run_id = same[0]
        else:
            tags = {**self._tags, RUN: self.run.id, STEP: step, "mlflow.source.name": "understudy"}
            tags |= {} if parent else {NOTE: intent(Recipe.model_validate(self.run.recipe))}
            tags |= {PARENT_RUN: above} if above else {}
            name = self.run.id if step == PARENT else step
            run_id = server.make_run(place, self._started(step), tags, name)
        if step == PARENT:
            recipe = completed(Recipe.model_validate(self.run.recipe))
            log_params(server, run_id, recipe.model_dump(mode="json", by_alias=True))
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"server": _server_of(self.run, self.uri), "experiment_id": place, "run_id": run_id})
        return str(run_id)

    def _started(self, step: str) -> int:
        """When the run or the step began, in milliseconds."""
        state = self.run.state(step)
        began = (state.started if state else 0) or (step == PARENT and self.run.facts.started) or time.time()
        return int(1000 * began)


def outer_run(server: TrackingServer) -> str | None:
    """KFP's own record of the pipeline, where its MLflow plug-in makes one; ours goes below it, so that it is one tree.

    The plug-in (KFP 2.17) gives each task a run of its own in MLFLOW_RUN_ID, nested in the pipeline's.
    """
    task = os.environ.get(TASK_RUN)
    tags = server.run_tags(task) if task else None  # of another server it is unknown here
    return (tags or {}).get(PARENT_RUN)


class _Follower(threading.Thread):
    """Sends a training's points until it ends."""

    def __init__(self, recorder: Recorder, step: str, tail: Tail) -> None:
        super().__init__(name=f"mlflow {step}", daemon=True)
        self.ended = threading.Event()
        self.status: str | None = "FAILED"
        self._recorder, self._step, self._tail = recorder, step, tail
        self._pending: list[Point] = []
        self._server: TrackingServer | None = None
        self._run_id = ""
        self._last = -1.0  # the newest step that the server has

    def run(self) -> None:
        """Look every second, or every half minute while the server fails, and once more at the end."""
        wait, over = 0.0, False
        while not over:
            over = self.ended.wait(wait)
            wait = EVERY
            try:
                self._server = self._server or server_at(self._recorder.uri)
                self._advance(self._server)
                if over:
                    self._finish(self._server)
                self._recorder.problem = None
            except (UnderstudyError, OSError) as error:
                self._recorder.problem, wait = str(error), RETRY

    def _advance(self, server: TrackingServer) -> None:
        if not self._run_id:
            run_id = self._recorder.open(server, self._step)
            self._last = max(server.steps(run_id), default=-1)
            self._run_id = run_id
        # A training that resumed writes the steps since its checkpoint again; they are the same and not sent twice.
        newest = self._pending[-1]["step"] if self._pending else self._last
        for point in self._tail.read():
            if point["step"] > newest:
                self._pending.append(point)
                newest = point["step"]
        # What is sent stays pending until the server has taken it: while it is away, nothing is lost.
        send(server, self._run_id, str(self._recorder.run.recipe["task"]), self._pending)
        self._last, self._pending = newest, []

    def _finish(self, server: TrackingServer) -> None:
        if self.status is None:
            return
        server.end(self._run_id, self.status)
        if self.status != "FINISHED":
            server.end(self._recorder.open(server), self.status)


def close_dead(store: Store, uri: str) -> int:
    """End the MLflow runs of pipeline runs that nobody works for any more, as those ended.

    Returns:
        How many pipeline runs were closed. MLflow is not imported when there are none.

    Raises:
        UnderstudyError: the server does not answer.
    """
    dead = [run for run in store.runs() if not run.is_live]
    records = [(run, _open_on(run, uri)) for run in dead]
    still_open = [(run, record) for run, record in records if record is not None]
    if not still_open:
        return 0
    server = server_at(uri)
    for run, record in still_open:
        _end_open(server, run, record)
    return len(still_open)


def close_ended(run: Run, uri: str) -> None:
    """End a run's MLflow runs as the run has ended.

    Raises:
        UnderstudyError: the server does not answer.
    """
    if record := _open_on(run, uri):
        _end_open(server_at(uri), run, record)


def _end_open(server: TrackingServer, run: Run, record: Record) -> None:
    status = STATUS.get(STOPPED if run.exit_code is None else run.exit_code, "FAILED")
    query = f"tags.`{RUN}` = '{run.id}' and attributes.status = 'RUNNING'"
    for found in server.runs([record["experiment_id"]], query):
        server.end(found, status)
    close(run)


def _open_on(run: Run, uri: str) -> Record | None:
    """The run's record on this server, while it is open there."""
    record: Record | None = read_json(run.folder / "mlflow.json")
    if record is None or record.get("closed"):
        return None
    return record if record["server"] == _server_of(run, uri) else None


def _server_of(run: Run, uri: str) -> str:
    store = run.folder.parents[1]
    return identity(uri, store.parent)


def close(run: Run) -> None:
    """Write down that the run's record in MLflow is complete."""
    write_json(run.folder / "mlflow.json", {**read_json(run.folder / "mlflow.json"), "closed": True})
