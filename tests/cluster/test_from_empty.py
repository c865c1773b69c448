"""From an empty namespace to a student, as docs/operating/cluster.md says: the overlay dev, doctor, a recipe.

The models have the digests of the same recipe on this machine, and a second run does nothing again.
"""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.launched import FOR_THE_CLUSTER, ROOT, overlay

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.timeout(1500)]
NAMESPACE = f"understudy-empty-{secrets.token_hex(3)}"
MODELS = ("teacher", "control", "distill")
STEP = re.compile(r"^(\w+) +(done|reused) +[\d.]+ s  ([0-9a-f]{12})", re.MULTILINE)


def kubectl(*arguments: str, text: str | None = None) -> str:
    command = ["kubectl", "-n", NAMESPACE, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def understudy(*arguments: str, **environment: str) -> str:
    """The command's output; it has to succeed."""
    command = [sys.executable, "-m", "understudy", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def digits(nodes: int, processes: int) -> list[str]:
    """The recipe, with all of its trainings on as many processes."""
    values = {"device": "cpu", "nodes": nodes, "processes": processes, **({"pool": "gpu"} if nodes > 1 else {})}
    overrides = [f"resources.{job}.{key}={value}" for job in ("teacher", "distill") for key, value in values.items()]
    overrides += ["teacher.train.strategy=ddp", "student.train.strategy=ddp"]
    return [
        "run",
        str(ROOT / "recipes" / "digits.yaml"),
        *(part for override in overrides for part in ("--set", override)),
    ]


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The overlay, and all of it ready."""
    kubectl("apply", "--server-side", "-f", "-", text=overlay(NAMESPACE, tmp_path_factory.mktemp("overlay")))
    kubectl("wait", "--for=condition=complete", "job/understudy-prepare-store", "--timeout=180s")
    kubectl("rollout", "status", "deployment/mlflow", "--timeout=300s")
    yield
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl("delete", "clusterrolebinding", *(f"{NAMESPACE}-{name}" for name in FOR_THE_CLUSTER))


@pytest.mark.usefixtures("applied")
def test_the_doctor_finds_nothing_and_the_cleanup_runs() -> None:
    understudy("doctor", "--cluster", "-n", NAMESPACE)
    name = kubectl("get", "cronjobs", "-o", "name").strip()
    kubectl("create", "job", "tried-once", f"--from={name}")
    kubectl("wait", "--for=condition=complete", "job/tried-once", "--timeout=180s")


@pytest.mark.usefixtures("applied")
def test_a_recipe_becomes_a_registered_student_with_the_bits_of_one_machine(tmp_path: Path) -> None:
    command = [*digits(2, 2), "--on", "cluster", "-n", NAMESPACE]
    first = understudy(*command)
    assert re.search(r"registered: digits version \d+", first), first
    assert {state for _, state, _ in STEP.findall(first)} == {"done"}
    in_cluster = {step: digest for step, _, digest in STEP.findall(first)}
    again = STEP.findall(understudy(*command))
    assert {step: (state, digest) for step, state, digest in again} == {
        step: ("reused", digest) for step, digest in in_cluster.items()
    }
    locally = {
        step: digest for step, _, digest in STEP.findall(understudy(*digits(1, 4), UNDERSTUDY_HOME=str(tmp_path)))
    }
    assert {model: locally[model] for model in MODELS} == {model: in_cluster[model] for model in MODELS}
