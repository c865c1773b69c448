"""understudy plan."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from tests.unit.plan.shrunk import SIZES, overrides
from understudy.cli import app
from understudy.errors import InputError
from understudy.plan.hardware import table
from understudy.plan.machine import gpus
from understudy.recipe import Degrees

TWO = ("--set", "resources.teacher.processes=2")
SMALL = overrides({**SIZES, "teacher.model.config.num_hidden_layers": "2"})


def plan(*options: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["plan", "recipes/llm.yaml", *SMALL, *options])
    assert done.exit_code == status, done.output
    return done.stdout if status != 2 else done.stderr


def test_it_says_what_each_training_takes() -> None:
    output = plan()
    assert "teacher: dp_shard 4 on 1 x 4 H100" in output
    assert "distill: dp_shard 2 on 1 x 2 H100" in output
    assert output.count("fits") == 2
    assert "20,000 steps" in output
    assert output.count("GiB of each node's memory: processes") == 2
    assert "their tensors" not in output
    assert output.count("of the store at most, with 3 checkpoints of") == 2
    assert "stay in the store: teacher" in output
    assert "GiB: " not in output
    together = re.search(r"trainings ([\d.]+ \w+) one after another, ([\d.]+) USD; the control, at most", output)
    assert together
    trainings = re.findall(r"steps: ([\d.]+ \w+), ([\d.]+) USD", output)
    assert minutes(together[1]) == pytest.approx(sum(minutes(hours) for hours, _ in trainings), abs=0.11)
    assert float(together[2]) == pytest.approx(sum(float(cost) for _, cost in trainings), abs=0.011)
    assert "0.02 MiB of keys and values for each 32 tokens" in output  # 2 layers x 2 x 4 heads x 8 wide x 32 x 4 bytes


def minutes(time: str) -> float:
    number, unit = time.split()
    return float(number) * {"s": 1 / 60, "min": 1, "h": 60}[unit]


def test_other_degrees_are_ranked_for_machines_too() -> None:
    document = json.loads(plan("--json", "--all", *TWO))
    alternatives = document["distill"]["others"]
    assert {"tp", "cp", "pp", "dp_replicate"} == {
        name for alternative in alternatives for name, size in alternative["degrees"].items() if size == 2
    }
    assert [alternative["step_seconds"]["all"] for alternative in alternatives] == sorted(
        alternative["step_seconds"]["all"] for alternative in alternatives
    )
    host, disk, run = document["teacher"]["host_bytes"], document["teacher"]["disk_bytes"], document["run"]
    assert host["all"] == host["processes"] + host["tensors"] + host["checkpoint"]
    assert (host["limit"], host["fits"]) == (None, True)
    assert disk["most"] == 3 * disk["checkpoint"]
    assert run["models_bytes"].keys() == {"teacher", "student", "control"}
    assert run["models_bytes"]["teacher"] == disk["model"]
    assert run["serving_bytes"]["cache"] == 2 * 2 * 4 * 8 * 32 * 4
    teacher = document["teacher"]
    assert (teacher["nodes"], teacher["processes_per_node"], teacher["steps"]) == (1, 2, 20000)
    assert teacher["hours"] == pytest.approx(teacher["plan"]["step_seconds"]["all"] * 20000 / 3600)
    assert teacher["usd"] == pytest.approx(teacher["hours"] * 2 * teacher["usd_an_hour_and_process"])
    teacher_plan = document["teacher"]["plan"]
    assert teacher_plan["peak_bytes"] == sum(teacher_plan["kinds_bytes"].values())


def test_what_asks_for_a_cpu_is_planned_for_one() -> None:
    output = plan("--set", "resources.distill.device=cpu")
    assert "distill: dp_shard 2 on 1 x 2 CPU" in output
    assert "teacher: dp_shard 4 on 1 x 4 H100" in output
    assert "processes 1.50 GiB, their tensors" in output


def test_what_does_not_fit_is_said_by_the_exit_code_and_has_the_way_out_beside_it(tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    table.write_text("Tiny: {memory: 0.001, tflops: {fp32: 10}, link: 1, network: 1, price: 0}")
    output = plan("--hardware", "Tiny", "--table", str(table), status=1)
    assert "DOES NOT FIT" in output
    assert "to fit    dp_shard 4 takes " in output
    assert "take GPUs with more memory" in output


def test_where_nothing_fits_the_nearest_is_told_and_nothing_written(tmp_path: Path) -> None:
    table, recipe = tmp_path / "table.yaml", tmp_path / "digits.yaml"
    table.write_text("Tiny: {memory: 0.001, tflops: {fp32: 10}, link: 1, network: 1, price: 0}")
    text = Path("recipes/digits.yaml").read_text()
    recipe.write_text(text)
    auto = ("--set", "teacher.train.strategy=auto", "--set", "resources.teacher.processes=2")
    done = CliRunner().invoke(app, ["plan", str(recipe), *auto, "--hardware", "Tiny", "--table", str(table), "--write"])
    assert done.exit_code == 1, done.output
    assert "teacher: dp_shard 2 on 1 x 2 Tiny" in done.stdout
    assert "digits.yaml: unchanged, since not every training fits" in done.stderr
    assert recipe.read_text() == text


def test_without_a_name_it_plans_for_this_machine_and_says_so_and_epochs_have_a_whole_time() -> None:
    done = CliRunner().invoke(app, ["plan", "recipes/digits.yaml", "--json"])
    document = json.loads(done.stdout)
    for name, steps in (("teacher", 30 * 23), ("distill", 40 * 23)):  # of 1,438 images, about, in batches of 64
        training = document[name]
        assert training["hardware_reason"].startswith("this machine's, which has ")
        assert training["steps"] == steps
        assert training["hours"] == pytest.approx(training["plan"]["step_seconds"]["all"] * steps / 3600)
    output = plan()
    assert output.count("hardware  assumed, since the recipe asks for GPUs") == (0 if gpus() else 2)


def test_a_gpu_that_is_not_in_the_table_is_planned_for_without_times(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="NVIDIA GeForce RTX 4090", total_memory=25_386_352_640, major=8, minor=9)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    output = plan("--all", *TWO)
    assert "teacher: dp_shard 2 on 1 x 2 NVIDIA GeForce RTX 4090\n" in output
    assert "of 23.6 GiB a process: fits" in output
    assert output.count("a step    no time, since the speed is not known; --table ") == 2
    assert output.count("in all    20,000 steps\n") == 2
    assert "other degrees" in output
    assert "trainings" not in output
    assert not re.search(r"\d s\b|USD|a step$", output, re.MULTILINE)
    distill = json.loads(plan("--json", "--all", *TWO))["distill"]
    assert (distill["steps"], distill["hours"], distill["usd"]) == (20000, None, None)
    assert {json.dumps(estimate["step_seconds"]) for estimate in [distill["plan"], *distill["others"]]} == {"null"}
    assert "a step    " in (with_hardware := plan("--hardware", "L4"))
    assert "no time" not in with_hardware


def test_hardware_that_is_not_in_the_table_is_refused() -> None:
    assert "B1000 is not in the table (H200, H100" in plan("--hardware", "B1000", status=2)


def test_the_recipe_may_name_the_hardware() -> None:
    assert "distill: dp_shard 2 on 1 x 2 L4" in plan("--set", "resources.distill.hardware=L4")
    arguments = ["plan", "recipes/llm.yaml", *SMALL, "--set", "resources.distill.hardware=L5"]
    assert "resources.distill.hardware: L5 is not in the table" in str(CliRunner().invoke(app, arguments).exception)


def test_the_best_degrees_are_written_into_the_recipe_and_nothing_else(tmp_path: Path) -> None:
    before = Path("recipes/llm.yaml").read_bytes().replace(b"nodes: 2, processes: 8", b"processes: 2")
    path = tmp_path / "llm.yaml"
    path.write_bytes(before.replace(b"\n", b"\r\n"))
    done = CliRunner().invoke(app, ["plan", str(path), *SMALL, *TWO, "--write", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    after = path.read_bytes().decode().split("\r\n")
    changed = [(old, new) for old, new in zip(before.decode().split("\n"), after, strict=True) if old != new]
    assert [old for old, _ in changed] == ["    strategy: fsdp"] * 2
    written = [yaml.safe_load(new)["strategy"] for _, new in changed]
    for name, degrees in zip(("teacher", "distill"), written, strict=True):
        assert document[name]["plan"]["degrees"] == Degrees(**degrees).model_dump()


def row(**changes: Any) -> bytes:
    return yaml.safe_dump(
        {"L5": {"memory": 8, "tflops": {"fp32": 1}, "link": 1, "network": 1, "price": 1} | changes}
    ).encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"a: [", "while parsing"),
        (b"7", "expected a section"),
        (b"a: \xff", "'utf-8' codec"),
        (row(tflops={}), "L5: tflops: has no fp32, which all hardware supports"),
        (row(tflops={"bf16": 900}), "L5: tflops: has no fp32"),
        (row(memory=0), "L5: memory: must be greater than 0, got 0"),
        (row(memory=float("nan"), link=float("inf")), "L5: memory: .*; L5: link: "),
        (row(cores=8), "L5: cores: unknown key"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    path = tmp_path / "table.yaml"
    path.write_bytes(text)
    with pytest.raises(InputError, match=rf"is not a table of hardware \({why}"):
        table(path)


def test_a_node_s_memory_is_compared_where_the_recipe_says_it() -> None:
    limits = ("--set", "resources.teacher.memory=1Gi", "--set", "resources.distill.memory=64Gi")
    output = plan(*limits, "--hardware", "CPU", "--set", "student.train.compile=true", status=1)
    assert "1.00 GiB are available, by resources.teacher.memory: DOES NOT FIT" in output
    assert "64.00 GiB are available, by resources.distill.memory: fits" in output
    assert output.count("their tensors") == 2  # ranks on CPUs have them there
    assert output.index("distill:") < output.index("without compile, which is not planned and takes less")


def test_images_leave_nothing_where_they_are_served() -> None:
    done = CliRunner().invoke(app, ["plan", "recipes/digits.yaml"])
    assert done.exit_code == 0, done.output
    assert "of weights, no keys and values" in done.stdout


def test_what_is_wrong_with_the_recipe_gets_its_line() -> None:
    arguments = ["plan", "recipes/llm.yaml", *SMALL, "--set", "student.train.precision=fp8", "--hardware", "A100"]
    message = str(CliRunner().invoke(app, arguments).exception)
    assert message.startswith(
        "--set student.train.precision=fp8: student.train.precision: the hardware does not compute"
    )
