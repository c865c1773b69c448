import json
from pathlib import Path

import pytest
import yaml

from tests import ROOT

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


def test_a_recipe_in_which_nothing_is_wrong_is_told_what_is_not_known_yet(understudy) -> None:
    outcome = understudy("recipe", "check", str(ROOT / "recipes" / "digits.yaml"), "--set", "seed=3")
    assert outcome.code == 0
    first, *unknown = outcome.out.splitlines()
    assert first.endswith("digits.yaml: no errors found")
    assert unknown
    assert all(line.startswith("not checked") for line in unknown)
    questions = [line.partition(": whether")[2] for line in unknown[1:]]
    assert len(set(questions)) == len(questions) == 3, "one line for each kind"
    assert unknown[-1] == (
        "not checked before a run: teacher.train.batch_size, student.train.batch_size: whether the model can learn "
        "from the smallest part of a batch; tried before the first training"
    )


@pytest.mark.parametrize(
    ("changes", "item"),
    [
        (
            ("student.train.optimizer.no_decay=[x]",),
            "student.train.optimizer.no_decay: whether there are such parameters",
        ),
        (
            ("student.train.lora={modules: [q]}", "student.model={pretrained: ./model}"),
            "student.train.lora.modules: whether the model has such layers",
        ),
        (
            ("teacher.train.strategy=tp", "resources.teacher.processes=2"),
            "teacher.train.strategy: whether tp 2 divides the model's attention heads",
        ),
        (
            (
                "student.train.strategy=pp",
                "resources.distill.processes=2",
                "student.train.gradient_accumulation_steps=2",
            ),
            "student.train.strategy: whether pp 2 can cut the model into stages",
        ),
        (
            (),
            "teacher.train.batch_size, student.train.batch_size: whether the model can learn from the smallest part of "
            "a batch",
        ),
    ],
)
def test_what_only_a_built_model_tells_is_listed_as_not_checked(
    understudy, changes: tuple[str, ...], item: str
) -> None:
    Path("r.yaml").write_text(RECIPE)
    Path("model").mkdir()
    Path("model/config.json").write_text('{"model_type": "vit"}')
    Path("model/model.safetensors").touch()
    outcome = understudy("recipe", "check", "r.yaml", *(part for change in changes for part in ("--set", change)))
    assert outcome.code == 0, outcome.err
    assert f"not checked before a run: {item}; tried before the first training" in outcome.out.splitlines()
    assert (item in understudy("recipe", "check", "r.yaml").out) == (not changes)


@pytest.mark.parametrize("command", [("recipe", "check"), ("run",)])
def test_what_a_schema_cannot_know_is_one_message_with_lines_too(understudy, command: tuple[str, ...]) -> None:
    Path("r.yaml").write_text(RECIPE.replace("{source: {type: digits}}", "{source: {type: parquet, path: no}}"))
    overrides = ("--set", "student.model.type=vitt", "--set", "teacher.model.config.hiden_size=8")
    outcome = understudy(*command, "r.yaml", *overrides)
    assert (outcome.code, outcome.out) == (2, "")
    first, second, third = outcome.err.splitlines()
    assert first.startswith(f"error: r.yaml:3: data.source.path: {Path('no').absolute()} does not exist")
    assert second == (
        "--set student.model.type=vitt: student.model.type: vitt is no architecture of transformers; did you mean vit?"
    )
    assert third.endswith("teacher.model.config.hiden_size: vit has no such setting; did you mean hidden_size?")
    assert not Path(".understudy").exists()


def test_what_the_schema_and_what_the_models_say_is_one_message(understudy) -> None:
    text = RECIPE.replace("steps: 9", "stesp: 9, steps: 9", 1).replace("{type: digits}", "{type: parquet, path: no}")
    Path("r.yaml").write_text(text + "gate: {margin: big}")
    outcome = understudy("recipe", "check", "r.yaml", "--set", "student.model.type=vitt")
    assert outcome.code == 2
    assert [line.partition(": ")[2].partition(": ")[0] for line in f"{outcome.err}".splitlines()] == [
        "r.yaml:3",
        "teacher.train.stesp",
        "gate.margin",
        "student.model.type",
    ]


@pytest.mark.parametrize("start", ["{teacher: ghost}", "{}"])
def test_layers_of_a_teacher_that_does_not_exist_are_refused_in_one_message(understudy, start: str) -> None:
    section = "teacher" if start == "{}" else "student"
    Path("r.yaml").write_text(RECIPE)
    outcome = understudy("recipe", "check", "r.yaml", "--set", f"{section}.start={start}")
    assert outcome.code == 2, outcome.err
    assert f"{section}.start.teacher: " in outcome.err


def test_a_named_teachers_model_is_checked_although_the_recipe_is_refused_for_something_else(understudy) -> None:
    recipe = yaml.safe_load(RECIPE)
    recipe["teachers"] = {"a": recipe.pop("teacher")}
    recipe["teachers"]["a"]["model"]["type"] = "vitt"
    recipe["gate"] = {"margin": "big"}
    Path("r.yaml").write_text(yaml.safe_dump(recipe))
    outcome = understudy("recipe", "check", "r.yaml")
    assert "gate.margin: " in outcome.err
    assert "teachers.a.model.type: vitt is no architecture of transformers; did you mean vit?" in outcome.err


def test_a_factory_starts_at_the_recipes_folder(understudy) -> None:
    Path("mine").mkdir()
    Path("mine/nets.py").write_text("def small(): ...")
    text = RECIPE.replace("student: {model: {type: vit}", "student: {model: {factory: 'nets:small'}")
    for folder in ("mine", "."):
        Path(folder, "r.yaml").write_text(text)
    assert understudy("recipe", "check", "mine/r.yaml").code == 0
    outcome = understudy("recipe", "check", "r.yaml")
    assert outcome.code == 2
    assert "r.yaml:5: student.model.factory: there is no module nets in the recipe's folder" in outcome.err
