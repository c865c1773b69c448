"""The distribution understudy-server: its requirements are in the image and here, and its wheel has all its files."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from understudy import __version__

FOLDER = ROOT / "server"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "server" / "pyproject.toml").read_text())["project"]
MAIN: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMAGE = ROOT / "images" / "mlflow" / "requirements.lock"


def locked(lock: Path) -> dict[str, str]:
    """The version of each library in a lock."""
    return dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", lock.read_text(), re.MULTILINE))


def required() -> dict[str, str]:
    """The distributions that it requires beside understudy, and the version of those where it is exact."""
    names = (re.fullmatch(r"([\w-]+)(?:\[\w+\])?(?:==(.+))?", line) for line in PROJECT["dependencies"])
    return {match[1]: match[2] or "" for match in names if match and match[1] != "understudy"}


@pytest.mark.parametrize("lock", [IMAGE, ROOT / "requirements-dev.lock"], ids=["image", "dev"])
def test_its_requirements_are_locked(lock: Path) -> None:
    assert len(required()) == len(PROJECT["dependencies"]) - 1
    versions = locked(lock)
    assert required().keys() - versions.keys() == set()
    assert {name: versions[name] for name, version in required().items() if version} == {
        name: version for name, version in required().items() if version
    }


def test_both_distributions_have_one_version() -> None:
    assert PROJECT["version"] == MAIN["version"] == __version__
    assert f"understudy=={__version__}" in PROJECT["dependencies"]
    assert [line for line in MAIN["dependencies"] if line.startswith("understudy")] == []


def test_mlflow_finds_the_app_by_its_name() -> None:
    assert PROJECT["entry-points"]["mlflow.app"] == {"understudy": "understudy_server.app:create_app"}
    assert {entry.value for entry in entry_points(group="mlflow.app", name="understudy")} == {
        "understudy_server.app:create_app"
    }


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(tmp_path: Path) -> None:
    copy = tmp_path / "server"
    shutil.copytree(FOLDER, copy, symlinks=True, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "build"))
    shutil.copy(ROOT / "LICENSE", tmp_path)  # server/LICENSE is a link to it
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--offline", "--no-build-isolation"]
    subprocess.run(
        [*command, "--python", sys.executable, "-o", str(tmp_path / "dist"), str(copy)], check=True, env=environment
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    source = FOLDER / "src" / "understudy_server"
    files = {f"understudy_server/{path.name}" for path in source.iterdir() if path.is_file()}
    assert {name for name in names if ".dist-info/" not in name} == files
    assert [name for name in names if name.endswith("licenses/LICENSE")] != []
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout.count("PASSED") == 2, checked.stdout
