"""What understudy init writes runs, from the folder to a verdict, with few steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SHORT = ["--set", "teacher.train.steps=3", "--set", "student.train.steps=3", "--set", "evaluate.latency.repeats=2"]


def understudy(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "understudy", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for number in range(200):
        path = tmp_path / "data" / ("dark", "light")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(100 * (number % 2), 100 + 100 * (number % 2), (16, 16, 3), np.uint8)).save(path)
    return tmp_path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    words = ["understudy", "lead", "stage", "light", "curtain", "applause", "the", "a"]
    (tmp_path / "data").mkdir()
    for number in range(250):
        (tmp_path / "data" / f"{number}.txt").write_text(" ".join(random.choice(words, 60)))
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize("kind", ["images", "texts"])
def test_a_first_recipe_runs(kind: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(kind)
    created = understudy(folder, "init", "data")
    assert created.returncode == 0, created.stderr
    done = understudy(folder, "run", "data.yaml", "--json", *SHORT)
    assert done.returncode in (0, 3), done.stderr
    end = json.loads(done.stdout.splitlines()[-1])
    assert end["measures"]["models"].keys() == {"teacher", "student", "control"}
