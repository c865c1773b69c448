import json
from pathlib import Path

import yaml

RECIPE = """\
name: digits
task: image-classification
data: {source: {type: digits}}
teacher: {model: {type: vit}, train: {steps: 9}}
student: {model: {type: vit}, train: {steps: 9}}
"""


def test_the_schema_is_json(understudy) -> None:
    outcome = understudy("recipe", "schema")
    assert outcome.code == 0
    assert json.loads(outcome.out)["title"] == "Recipe"


def test_a_recipe_is_shown_complete_and_can_be_read_again(understudy) -> None:
    Path("r.yaml").write_text(RECIPE)
    outcome = understudy("recipe", "show", "r.yaml", "--set", "seed=3", "--set", "student.train.batch_size=8")
    assert outcome.code == 0
    shown = yaml.safe_load(outcome.out)
    assert (shown["seed"], shown["student"]["train"]["batch_size"], shown["gate"]["margin"]) == (3, 8, 0.02)
    Path("again.yaml").write_text(outcome.out)
    assert understudy("recipe", "show", "again.yaml").out == outcome.out


def test_all_that_is_wrong_is_one_message(understudy) -> None:
    Path("r.yaml").write_text(RECIPE.replace("steps: 9", "stesp: 9"))
    outcome = understudy("recipe", "show", "r.yaml", "--set", "seed=x")
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.splitlines() == [
        "error: r.yaml:4: teacher.train.stesp: unknown key; did you mean steps?",
        "r.yaml:5: student.train.stesp: unknown key; did you mean steps?",
        '--set seed=x: seed: expected a whole number, got "x"',
    ]


def test_the_last_line_for_machines_is_an_end_also_when_nothing_could_begin(understudy, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("name: x")
    outcome = understudy("run", "wrong.yaml", "--json")
    end = json.loads(outcome.out.splitlines()[-1])
    assert (outcome.code, end["event"], end["exit_code"]) == (2, "end", 2)
    assert "wrong.yaml" in end["errors"][0]


def test_a_home_that_is_a_file_is_wrong_input(understudy, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "r.yaml").write_text(RECIPE)
    outcome = understudy("--home", "file", "run", "r.yaml")
    assert outcome.code == 2
    assert "is a file, not a folder" in outcome.err
