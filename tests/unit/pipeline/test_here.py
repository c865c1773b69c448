import os
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.recipe import Recipe
from understudy.recipe.file import load
from understudy.steps.environment import HOME, RUN
from understudy.store import Run, Store

RECIPE = """
name: tiny
task: image-classification
data: {source: {type: image-folder, path: pictures}}
teacher: {model: {type: vit}, train: {steps: 1}}
student: {model: {type: vit}, train: {steps: 1}}
"""


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(RECIPE)
    return path


def run_here(recipe: Recipe, home: Path) -> tuple[Run, str]:
    run = Store(home / "store").create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), "")
    environment = {**os.environ, RUN: run.id, HOME: str(home)}
    command = [sys.executable, "-m", "understudy.pipelines.here", str(run.folder)]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=300)
    return run, done.stdout + done.stderr


def test_a_steps_error_reaches_the_run_folder_as_one_message_with_its_exit_code(
    recipe_file: Path, tmp_path: Path
) -> None:
    run, output = run_here(load(recipe_file), tmp_path / "home")
    state = run.state("ingest")
    assert state is not None
    assert (state.state, state.exit_code) == ("failed", 2)
    assert state.detail.startswith(f"data.source.path: {tmp_path / 'pictures'} does not exist. Give a path that does;")
    assert [state.step for state in run.states()] == ["ingest"]
    assert output.count(f"ERROR understudy.steps.tasks: {state.detail}") == 1
    assert "understudy/steps" not in output  # no traceback of ours
