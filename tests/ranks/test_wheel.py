"""The wheel, built and installed alone, as a user without the checkout has it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import ROOT

LINKED = ("pipelines", "components", "recipes")
EPOCH = "1700000000"
WITNESS = """
import atexit, os, sys
def tell():
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    files = [spec.origin for spec in specs if spec and spec.name.split(".")[0] == "understudy"]
    with open(os.environ["WITNESS"], "a") as stream:
        stream.write("".join(f"{file}\\n" for file in files))
atexit.register(tell)
"""
DECOY = "raise ImportError('the folder of the user was imported')"
FEW_STEPS = [
    part
    for value in (
        "teacher.train.steps=3",
        "student.train.steps=3",
        "student.control=false",
        "evaluate.latency.repeats=5",
    )
    for part in ("--set", value)
]


def build(source: Path, folder: Path, kind: str) -> Path:
    """Build a wheel or an sdist of a source tree, with the locked setuptools and without the network."""
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--offline", "--no-build-isolation", f"--{kind}"]
    subprocess.run(
        [*command, "--python", sys.executable, "-o", str(folder), str(source)],
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
    )
    (built,) = (path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))
    return built


def tracked() -> list[str]:
    """The files of the checkout, links among them, with what git does not know yet and does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).exists()]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, since building leaves files behind."""
    folder = tmp_path_factory.mktemp("source")
    for name in tracked():
        if not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and this one's libraries, whose editable install a .pth file does not reach."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*command, "--python", str(environment / "bin" / "python"), str(wheel)], check=True)
    packages = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "witness.py").write_text(WITNESS)
    (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\nimport witness\n")
    return environment


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in tracked() if name.startswith("src/understudy/")} - {
        f"src/understudy/{name}" for name in LINKED
    }
    linked = {f"understudy/{name}" for name in tracked() if name.split("/")[0] in LINKED}
    files = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert files == {name.removeprefix("src/") for name in names} | linked
    (points,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("entry_points.txt"))
    assert b"understudy_server" not in zipfile.ZipFile(wheel).read(points), "that is another distribution"


def test_the_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        assert not any(member.issym() or "/tests/" in member.name for member in archive.getmembers())
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert build(unpacked, tmp_path / "built", "wheel").read_bytes() == wheel.read_bytes()


def test_a_package_index_would_take_them(wheel: Path, sdist: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout + done.stderr


def test_a_recipe_is_made_checked_planned_run_and_compiled_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    folder, output_folder = tmp_path / "empty", tmp_path / "seen"
    for name in ("pipelines", "components"):  # as many projects have them
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(DECOY)
    ours = ("PYTHONPATH", "UNDERSTUDY_", "MLFLOW_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}

    def understudy(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(installed / "bin" / "understudy"), *arguments],
            cwd=folder,
            env={**environment, "WITNESS": str(output_folder), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    images = ("--images", "registry.example.com/ml/understudy:0.1.0", "-o", "compiled")
    for code, arguments in (
        (0, ("init", "--example", "digits")),
        (0, ("recipe", "check", "digits.yaml")),
        (0, ("plan", "digits.yaml")),
        (3, ("run", "digits.yaml", *FEW_STEPS)),
        (0, ("compile", "digits.yaml", *images)),
    ):
        done = understudy(*arguments)
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
    compiled = folder / "compiled" / "digits.kubernetes.yaml"
    assert compiled.read_bytes() == (ROOT / "manifests" / "pipelines" / "digits.yaml").read_bytes()
    files = output_folder.read_text().split()
    assert {f"understudy/{name}" for name in ("cli/init.py", "pipelines/here.py", "pipelines/compiled.py")} <= {
        "/".join(Path(file).parts[-3:]) for file in files
    }
    assert [file for file in files if not Path(file).is_relative_to(installed)] == []


def test_a_wheel_without_its_data_says_what_is_missing(wheel: Path, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "understudy" / "plan" / "hardware.yaml").unlink()
    program = f"import sys; sys.path.insert(0, {str(packages)!r}); from understudy.cli import main; main()"
    command = [sys.executable, "-c", program, "plan", "digits.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {packages / 'understudy'}: this installation of understudy is incomplete: ")
    assert "plan/hardware.yaml missing" in done.stderr
