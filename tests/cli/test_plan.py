"""understudy plan."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.shrunk import SIZES, overrides
from understudy.cli import app
from understudy.recipe import Degrees

TWO = ("--set", "resources.teacher.processes=2")


def plan(*options: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["plan", "recipes/llm.yaml", *overrides(SIZES), *options])
    assert done.exit_code == status, done.output
    return done.stdout if status != 2 else done.stderr


def test_it_says_what_each_training_takes() -> None:
    said = plan()
    assert "teacher: dp_shard 4 on 1 x 4 H100" in said
    assert "distill: dp_shard 2 on 1 x 2 H100" in said
    assert said.count("fits") == 2
    assert "20,000 steps" in said


def test_other_degrees_are_ranked_for_machines_too() -> None:
    found = json.loads(plan("--json", "--all", *TWO))
    others = found["distill"]["others"]
    assert {"tp", "cp", "pp", "dp_replicate"} == {
        name for other in others for name, size in other["degrees"].items() if size == 2
    }
    assert [other["step_seconds"]["all"] for other in others] == sorted(
        other["step_seconds"]["all"] for other in others
    )
    own = found["teacher"]["plan"]
    assert own["peak_bytes"] == sum(own["kinds_bytes"].values())


def test_what_does_not_fit_is_said_by_the_exit_code(tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    table.write_text("Tiny: {memory: 0.001, tflops: {fp32: 10}, link: 1, network: 1, price: 0}")
    assert "DOES NOT FIT" in plan("--hardware", "Tiny", "--table", str(table), status=1)


def test_hardware_that_is_not_in_the_table_is_refused() -> None:
    assert "B1000 is not in the table (H200, H100" in plan("--hardware", "B1000", status=2)


def test_what_does_not_fit_has_the_way_out_beside_it(tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    table.write_text("Tiny: {memory: 0.001, tflops: {fp32: 10}, link: 1, network: 1, price: 0}")
    said = plan("--hardware", "Tiny", "--table", str(table), status=1)
    assert "to fit    dp_shard 4 takes " in said
    assert "take more processes" in said


def test_the_recipe_may_name_the_hardware() -> None:
    assert "distill: dp_shard 2 on 1 x 2 L4" in plan("--set", "resources.distill.hardware=L4")
    asked = ["plan", "recipes/llm.yaml", *overrides(SIZES), "--set", "resources.distill.hardware=L5"]
    assert "resources.distill.hardware: L5 is not in the table" in str(CliRunner().invoke(app, asked).exception)


def test_the_best_degrees_are_written_into_the_recipe_and_nothing_else(tmp_path: Path) -> None:
    before = Path("recipes/llm.yaml").read_text()
    path = tmp_path / "llm.yaml"
    path.write_text(before)
    done = CliRunner().invoke(app, ["plan", str(path), *overrides(SIZES), *TWO, "--write", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    changed = [
        (old, new) for old, new in zip(before.splitlines(), path.read_text().splitlines(), strict=True) if old != new
    ]
    assert [old for old, _ in changed] == ["    strategy: fsdp"] * 2
    written = [yaml.safe_load(new)["strategy"] for _, new in changed]
    for name, degrees in zip(("teacher", "distill"), written, strict=True):
        assert found[name]["plan"]["degrees"] == Degrees(**degrees).model_dump()


@pytest.mark.parametrize("text", ["a: [", "a: {memory: 1}", "7"])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    from understudy.errors import InputError
    from understudy.plan.hardware import table

    path = tmp_path / "table.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match="is no table of hardware"):
        table(path)
