"""Live record of a pipeline run in MLflow: one parent run, and a nested run for each step that has curves.

The first process that needs a run creates it, under a lease, and writes its id to the run folder for the others. A
server that does not respond never stops a training: missing points are sent when the student is registered.
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

EVERY = 1.0  # seconds between two reads of the metrics file
RETRY = 30.0  # seconds until a failed server is retried
PATIENCE = 30.0  # seconds to wait for the last points at the end of a training
HURRY = 1.0  # the same, when this process must exit while the training continues
LEASE = 30.0  # seconds
PARENT_RUN, TASK_RUN = "mlflow.parentRunId", "MLFLOW_RUN_ID"
STATUS = {DONE: "FINISHED", REJECTED: "FINISHED", STOPPED: "KILLED"}
"""MLflow's run status by exit code; FAILED for any other code."""


class Record(TypedDict):
    """The content of mlflow.json in a run's folder, and of mlflow/STEP.json."""

    server: str
    """The server's identity."""
    experiment_id: str
    run_id: str
    closed: NotRequired[bool]
    """Only in mlflow.json: no run is left open in MLflow."""


class Recorder:
    """One pipeline run's record in MLflow.

    Attributes:
        problem: the reason why the last points could not be sent; None if they were.
    """

    def __init__(self, run: Run, uri: str, experiment: str, tags: Mapping[str, str]) -> None:
        self.run = run
        self.problem: str | None = None
        self.uri, self._experiment, self._tags = uri, experiment, dict(tags)

    @contextmanager
    def follow(self, step: str, metrics_file: Path) -> Iterator[None]:
        """Send the points that a training appends to a JSONL file to the step's nested run, while the body runs.

        The nested run gets the status of the body; a failure or stop also ends the parent.
        """
        follower, patience = _Follower(self, step, Tail(metrics_file)), PATIENCE
        follower.start()
        try:
            yield
            follower.status = "FINISHED"
        except (Stopped, KeyboardInterrupt):
            follower.status = "KILLED"
            raise
        except (SystemExit, Fenced):  # the training continues under another process
            follower.status, patience = None, HURRY
            raise
        finally:
            follower.ended.set()
            follower.join(patience)
            if follower.is_alive():
                self.problem = f"{public_uri(self.uri)}: MLflow took more than {patience:.0f} s for the last points"

    def open(self, server: TrackingServer, step: str = PARENT) -> str:
        """Create or reopen a step's nested run, or the parent run, and return its id."""
        path = self.run.folder / ("mlflow.json" if step == PARENT else f"mlflow/{step}.json")
        parent = None if step == PARENT else self.open(server)
        if record := read_json(path):
            server.reopen(record["run_id"])
            if record.pop("closed", False):
                write_json(path, record)
            return str(record["run_id"])
        lease = leases.wait_for(self.run.folder / "work", f"mlflow-{step}", LEASE, give_up=lambda: False)
        assert lease is not None
        try:
            return self._create(server, step, parent, path)
        finally:
            lease.finish()

    def _create(self, server: TrackingServer, step: str, parent: str | None, path: Path) -> str:
        """Create a run, unless another process did so meanwhile, or did so and died before it recorded the id."""
        if record := read_json(path):
            return str(record["run_id"])
        above = parent or outer_run(server)
        experiment = server.experiment_of(above) if above else server.experiment(self._experiment)
        same = server.runs([experiment], f"tags.`{RUN}` = '{self.run.id}' and tags.`{STEP}` = '{step}'")
        if same:
            run_id = same[0]
        else:
            tags = {**self._tags, RUN: self.run.id, STEP: step, "mlflow.source.name": "understudy"}
            tags |= {} if parent else {NOTE: intent(Recipe.model_validate(self.run.recipe))}
            tags |= {PARENT_RUN: above} if above else {}
            name = self.run.id if step == PARENT else step
            run_id = server.make_run(experiment, self._started(step), tags, name)
        if step == PARENT:
            recipe = completed(Recipe.model_validate(self.run.recipe))
            log_params(server, run_id, recipe.model_dump(mode="json", by_alias=True))
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"server": _server_of(self.run, self.uri), "experiment_id": experiment, "run_id": run_id})
        return str(run_id)

    def _started(self, step: str) -> int:
        """The start of the run or the step, in Unix milliseconds."""
        state = self.run.state(step)
        began = (state.started if state else 0) or (step == PARENT and self.run.facts.started) or time.time()
        return int(1000 * began)


def outer_run(server: TrackingServer) -> str | None:
    """The pipeline's run by KFP's MLflow plug-in, if any; ours is nested in it, so that they form one tree.

    The plug-in (KFP 2.17) sets MLFLOW_RUN_ID to a run for each task, nested in the pipeline's.
    """
    task = os.environ.get(TASK_RUN)
    tags = server.run_tags(task) if task else None  # None if it is on another server
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
        self._last = -1.0  # the newest step on the server

    def run(self) -> None:
        """Send every second, or every half minute while the server fails, and once more at the end."""
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
        # A resumed training writes the steps since its checkpoint again; they are the same and not sent twice.
        newest = self._pending[-1]["step"] if self._pending else self._last
        for point in self._tail.read():
            if point["step"] > newest:
                self._pending.append(point)
                newest = point["step"]
        # Points stay pending until the server has accepted them: nothing is lost while it is unreachable.
        send(server, self._run_id, str(self._recorder.run.recipe["task"]), self._pending)
        self._last, self._pending = newest, []

    def _finish(self, server: TrackingServer) -> None:
        if self.status is None:
            return
        server.end(self._run_id, self.status)
        if self.status != "FINISHED":
            server.end(self._recorder.open(server), self.status)


def close_dead(store: Store, uri: str) -> int:
    """End the MLflow runs of pipeline runs that are no longer live, with the status of those.

    Returns:
        The number of closed pipeline runs. MLflow is not imported if there are none.

    Raises:
        UnderstudyError: the server does not respond.
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
    """End a run's MLflow runs with the status of the run.

    Raises:
        UnderstudyError: the server does not respond.
    """
    if record := _open_on(run, uri):
        _end_open(server_at(uri), run, record)


def _end_open(server: TrackingServer, run: Run, record: Record) -> None:
    status = STATUS.get(STOPPED if run.exit_code is None else run.exit_code, "FAILED")
    query = f"tags.`{RUN}` = '{run.id}' and attributes.status = 'RUNNING'"
    for run_id in server.runs([record["experiment_id"]], query):
        server.end(run_id, status)
    close(run)


def _open_on(run: Run, uri: str) -> Record | None:
    """The run's record on this server; None unless it is open."""
    record: Record | None = read_json(run.folder / "mlflow.json")
    if record is None or record.get("closed"):
        return None
    return record if record["server"] == _server_of(run, uri) else None


def _server_of(run: Run, uri: str) -> str:
    store = run.folder.parents[1]
    return identity(uri, store.parent)


def close(run: Run) -> None:
    """Mark the run's record in MLflow as complete."""
    write_json(run.folder / "mlflow.json", {**read_json(run.folder / "mlflow.json"), "closed": True})
