"""A finished pipeline run with a small made-up student, and a real MLflow server, for the fixtures.

Not in conftest, because tests import it by name, and conftest is many.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from understudy.graph import nodes
from understudy.recipe import Recipe
from understudy.registry.client import mlflow_at
from understudy.registry.evidence import NOT_SCORED, SERVED_PLACEHOLDER
from understudy.registry.new_version import Prove
from understudy.registry.register import Registration, register
from understudy.registry.submission import Submission
from understudy.store import Run, Store

FACTS: dict[str, Any] = {
    "task": "image-classification",
    "kind": "transformers",
    "labels": ["0", "1"],
    "mean": [0.5],
    "std": [0.5],
}
FACTS |= {"image": {"size": 8, "channels": 1}}
EXAMPLES: dict[str, Any] = {
    "task": "image-classification",
    "counts": {"train": 4, "validation": 0, "test": 2},
    "labels": ["0", "1"],
}
EXAMPLES |= {"image": {"size": 8, "channels": 1}, "mean": [0.5], "std": [0.5], "skipped": 0}
HISTORY: list[dict[str, Any]] = [
    {"step": step, "loss": 2 / step, "learning_rate": 0.1 / step, "grad_norm": 1.0 + step} for step in range(1, 31)
]
RECIPE: dict[str, Any] = {
    "name": "digits",
    "task": "image-classification",
    "data": {"source": {"type": "digits"}, "image": {"size": 8, "channels": 1}},
    "teacher": {"model": {"type": "vit"}, "train": {"steps": 300}},
    "student": {"model": {"type": "vit"}, "train": {"steps": 300}},
}


@dataclass
class Server:
    uri: str
    process: "subprocess.Popen[bytes]"
    folder: Path
    """Where its database and files are."""

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


EMPTY = """
import sys
from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore as Accounts
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
SqlAlchemyStore(sys.argv[1], "mlflow-artifacts:/")
Accounts().init_db(sys.argv[1])
"""


@cache
def empty_database() -> bytes:
    """A server's database with all its tables, whose migrations take longer than all else of its start."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-c", EMPTY, f"sqlite:///{folder}/server.db"]
        subprocess.run(command, check=True, capture_output=True)
        return (Path(folder) / "server.db").read_bytes()


def start_server(folder: Path, command: tuple[str, ...] = ("mlflow", "server"), **settings: str) -> Server:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--artifacts-destination", str(folder / "files")]
    arguments += [] if "--workers" in command else ["--workers", "1"]
    environment = {
        **os.environ,
        "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder}/server.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        **settings,
    }
    if "MLFLOW_BACKEND_STORE_URI" not in settings and not (folder / "server.db").exists():
        (folder / "server.db").write_bytes(empty_database())
    command_line = [sys.executable, "-m", *command, *arguments]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command_line, cwd=folder, stdout=log, stderr=log, start_new_session=True, env=environment
        )
    server, deadline = Server(f"http://127.0.0.1:{port}", process, folder), time.time() + 3000
    while True:
        try:
            urlopen(f"{server.uri}/health", timeout=5).close()
        except (URLError, OSError):
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.time() < deadline
            time.sleep(0.2)
        else:
            return server


def connect(uri: str) -> Any:
    """MLflow's own client of a server."""
    return mlflow_at(uri).client


def measures(digests: dict[str, str]) -> dict[str, Any]:
    latency = {"batch_size": 1, "median_ms": 1.5, "min_ms": 1.4, "p95_ms": 2.0, "throughput_per_s": 600.0}
    model = {
        "parameters": 1000,
        "flops": 5000,
        "bytes": 4000,
        "metrics": {"accuracy": 0.975, "nll": 0.1, "calibration_error": None},
        "intervals": {"accuracy": [0.96, 0.99]},
        "latency": latency,
        "calibration": [],
    }
    return {
        "task": "image-classification",
        "split": "test",
        "examples": 360,
        "gate_metric": "accuracy",
        "reference": "teacher",
        "hardware": {
            "device": "cpu",
            "cpu": "a processor",
            "cores": 2,
            "threads": 2,
            "processes": 1,
            "torch": "2",
            "precision": "fp32",
        },
        "models": {role: {**model, "digest": digest} for role, digest in digests.items()},
        "slices": [],
        "confusion": None,
    }


def verdict(approved: bool) -> dict[str, Any]:
    rule = {"rule": "quality-against-teacher", "passed": approved, "observed": -0.01, "interval": [-0.02, 0.0]}
    rule |= {"threshold": -0.02, "detail": "accuracy is 0.010 below the teacher's."}
    verdict = {"approved": approved, "metric": "accuracy", "confidence": 0.95, "margin": 0.02}
    detail = "the student recovered 50 % of the gap between control and teacher"
    verdict |= {"recovered": {"share": 0.5, "interval": [0.4, 0.6], "detail": detail}, "candidate": "student"}
    verdict |= {"headline": f"{'approved' if approved else 'rejected'}: within 2 points", "advice": [], "judged": ""}
    return {**verdict, "cautions": [], "control": None, "smallest_detectable": 0.01, "rules": [rule]}


class Pipeline:
    """A store with a run in it whose student is ready to be registered."""

    def __init__(self, folder: Path, uri: str, recipe: dict[str, Any] | None = None) -> None:
        self.uri = uri
        self.store = Store(folder / "store")
        self.recipe = Recipe.model_validate(recipe or RECIPE)
        self.run = self.new_run()

    def new_run(self) -> Run:
        return self.store.create_run("digits", self.recipe.model_dump(mode="json", by_alias=True), self.uri)

    def model(self, weights: bytes, history: list[dict[str, Any]] | None = None) -> str:
        staged = self.store.folder / "work" / f"staged-{weights.hex()[:16]}"
        staged.mkdir()
        (staged / "model.safetensors").write_bytes(weights)
        (staged / "understudy.json").write_text(json.dumps(FACTS))
        if history:
            (staged / "history.json").write_text(json.dumps(history))
        return self.store.objects.publish(staged, "model", {"examples": "e" * 64})

    def adopt(self, folder: Path) -> str:
        """Publish a copy of a model's folder."""
        staged = self.store.folder / "work" / f"staged-{folder.name}"
        shutil.copytree(folder, staged)
        return self.store.objects.publish(staged, "model")

    def register(
        self,
        run: Run | None = None,
        approved: bool = True,
        weights: bytes = b"student",
        student: str | None = None,
        prove: Prove | None = None,
    ) -> Registration:
        digests = {role: self.model(role.encode(), HISTORY) for role in ("teacher", "control")}
        digests["student"] = student or self.model(weights, HISTORY)
        run = run or self.run
        evidence = run.folder / "evidence"
        (evidence / "plots").mkdir(parents=True, exist_ok=True)
        if not (evidence / "measures.json").exists():
            (evidence / "measures.json").write_text(json.dumps(measures(digests)))
        candidate = self.recipe.candidate
        (evidence / "verdict.json").write_text(json.dumps({**verdict(approved), "candidate": candidate}))
        (evidence / "report.html").write_text(f"<html>the report{SERVED_PLACEHOLDER}</html>")
        (evidence / "plots" / "curves.png").write_bytes(b"a picture")
        examples = run.folder / "examples"
        examples.mkdir(exist_ok=True)
        (examples / "examples.json").write_text(json.dumps(EXAMPLES))
        submission = Submission(
            self.recipe,
            model=self.store.objects.path(digests[candidate]),
            digest=digests[candidate],
            measures=evidence,
            verdict=evidence,
            models={role: self.store.objects.path(digest) for role, digest in digests.items()},
            steps={node.role: node.name for node in nodes(self.recipe)},
            examples=examples,
            lineage={"teacher": digests["teacher"], "examples": "e" * 64, "recipe": "r" * 64, "revision": "abc"},
        )
        return register(run, self.uri, submission, prove or (lambda version: {NOT_SCORED: "its weights are made up"}))
