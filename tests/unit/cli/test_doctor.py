import json
import os
import shutil
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from understudy.cli import doctor


def checks(outcome) -> dict[str, dict[str, object]]:
    return {check["what"]: check for check in json.loads(outcome.out)["checks"]}


def test_a_machine_that_has_everything_passes_and_nothing_is_made(understudy) -> None:
    outcome = understudy("doctor", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["ok"]
    assert {"python", "cores", "memory", "disk", "torch", "mlflow", "GPU", "store", "tracking server"} <= set(
        checks(outcome)
    )
    assert list(Path().iterdir()) == []
    assert understudy("doctor").out.splitlines()[1].split()[:2] == ["python", "ok"]
    assert understudy("-q", "doctor").out == ""


def test_a_missing_library_is_named_with_the_way_to_get_it(understudy, monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version

    def without_torch(name: str) -> str:
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "mlflow" else version(name)

    monkeypatch.setattr(metadata, "version", without_torch)
    outcome = understudy("doctor", "--json")
    assert outcome.code == 1
    by_name = checks(outcome)
    assert (by_name["torch"]["found"], by_name["torch"]["fix"]) == (
        "not installed",
        "python -m pip install torch==2.15.0",
    )
    assert (by_name["mlflow"]["found"], by_name["mlflow"]["fix"]) == ("0.1", "python -m pip install mlflow==3.17.2")
    assert "hypothesis" not in by_name
    assert [line.split()[0] for line in understudy("-q", "doctor").out.splitlines()[1:]] == ["mlflow", "torch"]


def test_too_little_of_anything_is_a_problem(understudy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", (3, 12, 0, "final", 0))
    monkeypatch.setattr(os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1))
    by_name = {check.what: check for check in doctor._machine(Path())}
    assert [subject for subject, check in by_name.items() if not check.ok] == ["python", "memory", "disk"]


def test_a_store_of_another_version_is_a_problem(understudy, store) -> None:
    (store.folder / "version.json").write_text('{"version": 99}')
    outcome = understudy("doctor", "--json")
    assert outcome.code == 1
    assert "has version 99" in str(checks(outcome)["store"]["fix"])


@pytest.mark.parametrize("number", [30, 95])
def test_a_disk_that_a_store_cannot_use_is_a_problem(understudy, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "rename", refuse)
    outcome = understudy("doctor", "--json")
    assert outcome.code == 1
    assert "--home" in str(checks(outcome)["store"]["fix"])
    assert list(Path().iterdir()) == []


def test_a_server_that_does_not_answer_is_a_problem_and_its_password_is_not_shown(understudy) -> None:
    outcome = understudy("--tracking-uri", "http://me:secret@127.0.0.1:9", "doctor", "--json")
    assert outcome.code == 1
    assert checks(outcome)["tracking server"]["ok"] is False
    assert "secret" not in outcome.out


@pytest.mark.parametrize(
    ("devices", "cuda", "ok", "expected"),
    [
        ([], "None", True, "none; training runs on the CPU"),
        (["nvidia0", "nvidia1"], "'12.8'", True, "2 NVIDIA, torch built for CUDA 12.8"),
        (["nvidia0"], "None", False, "1 NVIDIA, torch built without CUDA"),
    ],
)
def test_the_gpu_is_found_without_importing_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, devices: list[str], cuda: str, ok: bool, expected: str
) -> None:
    (tmp_path / "version.py").write_text(f"cuda: object = {cuda}\n")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [Path("/dev") / name for name in devices])
    check = doctor._gpu()
    assert (check.ok, check.found) == (ok, expected)


def test_a_remote_cache_has_to_take_a_file(understudy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "remote cache" not in checks(understudy("doctor", "--json"))
    monkeypatch.setenv("UNDERSTUDY_REMOTE_CACHE", f"file://{Path('bucket').absolute()}")
    assert checks(understudy("doctor", "--json"))["remote cache"]["ok"]
    monkeypatch.setenv("UNDERSTUDY_REMOTE_CACHE", "nowhere://bucket")
    outcome = understudy("doctor", "--json")
    assert (outcome.code, checks(outcome)["remote cache"]["ok"]) == (1, False)


def test_the_old_name_of_the_remote_caches_variable_is_a_problem(understudy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_RECORD", "s3://bucket/prefix")
    outcome = understudy("doctor", "--json")
    assert outcome.code == 1
    assert "it was renamed to UNDERSTUDY_REMOTE_CACHE" in str(checks(outcome)["remote cache"]["fix"])


def test_an_old_store_is_a_problem_with_the_way_out(understudy, store) -> None:
    (store.folder / "version.json").write_text('{"version": 1}')
    assert "Run understudy store migrate" in str(checks(understudy("doctor", "--json"))["store"]["fix"])


def test_a_home_that_is_a_file_is_no_place_for_a_store(understudy) -> None:
    Path("afile").write_text("")
    outcome = understudy("--home", "afile", "doctor", "--json")
    assert "is a file, not a folder" in checks(outcome)["store"]["found"]
    assert outcome.code == 1


def test_an_endpoint_that_is_no_address_is_told(understudy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_REMOTE_CACHE", "s3://bucket/prefix")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    outcome = understudy("doctor", "--json")
    assert "Invalid endpoint" in checks(outcome)["remote cache"]["fix"]


@pytest.mark.parametrize("flags", [["--collectives", "gpu"], ["--cluster", "--collectives", "gpu", "--json"]])
def test_a_measuring_is_of_a_cluster_and_prints_a_table(understudy, flags: list[str]) -> None:
    outcome = understudy("doctor", *flags)
    assert outcome.code == 2
    assert "add --cluster, leave --json out" in outcome.err
