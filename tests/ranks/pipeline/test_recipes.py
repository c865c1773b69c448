"""Every example recipe runs, from its file to a verdict, with few steps; the second run does nothing at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.unit.plan.shrunk import RUN, SIZES, overrides

RECIPES = ROOT / "recipes"
FIRST = "pydoc"  # what `make run` runs; the others in make test-full
SHORT = [
    setting
    for part in ("teacher", "student")
    for value in ("steps=3", "epochs=null", "schedule.warmup=0")
    for setting in ("--set", f"{part}.train.{value}")
]
SHRUNK = {"llm": overrides(SIZES, RUN)}
"""The changes of a recipe for a cluster on this machine."""
LESS = {FIRST: overrides({"data.test": "0.07", "evaluate.latency.repeats": "5"})}
"""Fewer documents to measure models on: with the recipe's own share, that takes longer than all else."""
WITNESS = """
import atexit, os, sys
def tell():
    with open(os.environ["WITNESS"], "a") as stream:
        print(*(name for name in ("torch", "transformers", "mlflow", "kfp") if name in sys.modules), file=stream)
atexit.register(tell)
"""


def changes(recipe: Path) -> list[str]:
    """The changes that make a run of the recipe short."""
    return [*SHORT, *SHRUNK.get(recipe.stem, []), *LESS.get(recipe.stem, [])]


def run(recipe: Path, home: Path, witness: Path) -> tuple[int, list[dict[str, object]], str]:
    """The exit code, the events, and which heavy libraries the run's processes imported."""
    witness.mkdir(exist_ok=True)
    (witness / "sitecustomize.py").write_text(WITNESS)
    output_path = witness / "said"
    output_path.write_text("")
    environment = {**os.environ, "PYTHONPATH": str(witness), "WITNESS": str(output_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "understudy", "--home", str(home), "run", str(recipe), "--json", *changes(recipe)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], output_path.read_text()


def ends(events: list[dict[str, object]]) -> dict[object, object]:
    """The last state of each step."""
    return {event["step"]: event["state"] for event in events if event["event"] == "step"}


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem == FIRST else pytest.mark.full)
        for path in sorted(RECIPES.glob("*.yaml"))
    ],
)
def test_a_recipe_runs_and_the_second_time_does_nothing(recipe: Path, tmp_path: Path) -> None:
    code, events, imported = run(recipe, tmp_path / "home", tmp_path / "witness")
    assert set(ends(events).values()) == {"done"}
    assert events[-1]["measures"]["models"].keys() == {"teacher", "student", "control"}  # type: ignore[attr-defined, index]
    if recipe.stem not in SHRUNK:  # whose jobs have several processes, which tell of themselves here, too
        assert "torch" not in imported, "only jobs load models, and a process with credentials is no job"
    assert "mlflow" in imported
    exit_code, events, imported = run(recipe, tmp_path / "home", tmp_path / "witness")
    assert exit_code == code
    assert set(ends(events).values()) == {"reused"}
    assert imported.strip() == ""
    quiet = [sys.executable, "-m", "understudy", "-q", "--home", str(tmp_path / "home"), "run", str(recipe)]
    outcome = subprocess.run([*quiet, *changes(recipe)], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (code, "")
    assert ("rejected: quality-against-" in outcome.stderr) == (code == 3)
