import json
import re
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import errors
from PIL import Image

from tests import ROOT
from understudy.data.ingest import ingest
from understudy.recipe import Recipe
from understudy.recipe.file import from_values, load
from understudy.steps import recipe_check
from understudy.steps.recipe_check import Findings, Here, findings

Change = Callable[..., Recipe]
Write = Callable[[Path, dict[str, int]], dict[str, str]]


BERT = {"type": "bert", "config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}}
TEXTS = {
    "name": "texts",
    "task": "text-classification",
    "teacher": {"model": BERT, "train": {"steps": 1}},
    "student": {"model": BERT, "train": {"steps": 1}},
}


def problems(result: Findings) -> list[str]:
    """As `place: words`."""
    return [f"{'.'.join(map(str, path))}: {message}" for path, message in result.problems]


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_arguments: Any, **_options: Any) -> str:
        raise errors.LocalEntryNotFoundError("no")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", away)


@pytest.mark.parametrize("name", ["digits", "pydoc"])
def test_nothing_is_wrong_with_the_examples(name: str) -> None:
    result = findings(load(ROOT / "recipes" / f"{name}.yaml"), Here())
    assert not result.problems
    assert len(result.unknown) == 1
    assert "ingest checks whether they are enough" in result.unknown[0]


def test_all_that_is_wrong_is_found_at_once(digits: Recipe, change: Change, tmp_path: Path) -> None:
    recipe = change(
        digits,
        f"data.source={{type: image-folder, path: {tmp_path / 'nowhere'}}}",
        "teacher.model.type=vitt",
        "student.model.config.pacth_size=2",
        "student.model.config.image_size=16",
    )
    errors = problems(findings(recipe, Here()))
    assert len(errors) == 4
    assert errors[0].startswith(f"data.source.path: {tmp_path / 'nowhere'} does not exist. Give a path that does")
    assert "starts at the recipe's folder" in errors[0]
    assert errors[1:] == [
        "teacher.model.type: vitt is no architecture of transformers; did you mean vit?",
        "student.model.config.pacth_size: vit has no such setting; did you mean patch_size?",
        "student.model.config.image_size: is 16, the data has 8; leave it out",
    ]


def test_an_architecture_of_another_task_is_told(digits: Recipe, change: Change) -> None:
    (error,) = problems(findings(change(digits, "teacher.model={type: llama}"), Here()))
    assert error == "teacher.model.type: llama is no architecture for the task image-classification"


@pytest.mark.parametrize(
    ("device", "scope", "noted"),
    [("cpu", Here(), True), ("cuda", Here(), False), ("cpu", Here(data=False, models=False), False)],
)
def test_a_gpu_that_is_not_here_is_noted_where_the_run_is_to_be_here(
    digits: Recipe, change: Change, monkeypatch: pytest.MonkeyPatch, device: str, scope: Here, noted: bool
) -> None:
    monkeypatch.setattr(recipe_check, "device_here", lambda: device)
    result = findings(change(digits, "resources.teacher.device=cuda"), scope)
    assert not result.problems
    assert any("resources.teacher.device: cuda, and this machine has no GPU" in note for note in result.notes) is noted


def test_a_column_that_is_not_there_is_found(digits: Recipe, change: Change, tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [b""], "kind": ["cat"]}), tmp_path / "a.parquet")
    recipe = change(digits, f"data.source={{type: parquet, path: {tmp_path}}}")
    assert problems(findings(recipe, Here())) == [
        "data.source.label: a.parquet has no column label. It has image, kind: name one of them."
    ]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_two_fields_is_found(kind: str, change: Change, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,topic\nhello,a\n")
    pq.write_table(pa.table({"text": ["hello"], "topic": ["a"]}), tmp_path / "a.parquet")
    source = {"type": kind, "path": str(tmp_path / f"a.{kind}"), "columns": {"label": "text"}}
    recipe = from_values({**TEXTS, "data": {"source": source}}, [], "here")
    assert problems(findings(recipe, Here())) == [
        "data.source.columns.label: text is the column of the field text, too; name the column that has the label."
    ]


FACTORIES = "from torch import nn\n\ndef small(num_labels):\n    return nn.Identity()\n"


@pytest.mark.parametrize(
    ("factory", "wrong"),
    [
        ("nets:small", ""),
        ("nets:nn", ""),
        ("package.inner:build", ""),
        ("torch.nn:Linear", ""),
        ("nets:smal", r"nets\.py has no smal; did you mean small\?"),
        ("net:small", r"there is no module net in the recipe's folder.*; did you mean nets\?"),
        ("netr:small", r"there is no module netr in the recipe's folder.*; did you mean nets\?"),
        ("argpars:small", r"there is no module argpars in .* environment$"),
        ("package.iner:build", r"there is no module package\.iner .*; did you mean inner\?"),
        ("broken:build", r"broken\.py is no Python"),
    ],
)
def test_a_factory_is_found_by_its_source_and_not_imported(
    digits: Recipe, change: Change, tmp_path: Path, factory: str, wrong: str
) -> None:
    (tmp_path / "nets.py").write_text(f"{FACTORIES}raise SystemExit('imported')")
    (tmp_path / "broken.py").write_text("def build(:")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "package" / "inner.py").write_text("build = 3")
    result = findings(change(digits, f"student.model={{factory: '{factory}'}}"), Here(search_path=[str(tmp_path)]))
    if not wrong:
        assert not result.problems
        return
    ((path, message),) = result.problems
    assert path == ("student", "model", "factory")
    assert re.search(wrong, message)


def saved(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").touch()
    return folder


def test_a_pretrained_folder_is_looked_into(digits: Recipe, change: Change, tmp_path: Path) -> None:
    fits = saved(tmp_path / "fits", model_type="vit", image_size=8, num_channels=1)
    large = saved(tmp_path / "large", model_type="vit", image_size=224, num_channels=1)
    text = saved(tmp_path / "text", model_type="llama")
    bare = saved(tmp_path / "bare", model_type="vit")
    (bare / "model.safetensors").unlink()

    def errors(folder: Path) -> list[str]:
        return problems(findings(change(digits, f"student.model={{pretrained: {folder}}}"), Here()))

    assert errors(fits) == []
    assert errors(large) == [f"data.image.size: is 8, but the student {large} takes 224; set it to 224"]
    assert errors(text) == [
        f"student.model.pretrained: {text} is a llama, which is no architecture for the task image-classification"
    ]
    assert errors(bare)[0].startswith(f"student.model.pretrained: {bare} has no safetensors")
    assert "has no config.json" in errors(tmp_path)[0]


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ([], "is not a JSON object; fetch it again"),
        ({"model_type": ["vit"]}, "has no model_type, or not a string; is it a transformers model?"),
        ({}, "has no model_type, or not a string; is it a transformers model?"),
        ({"model_type": ["vit"], "auto_map": {"AutoConfig": "mine.Config"}}, ""),
    ],
)
def test_a_configuration_of_another_form_is_told(
    digits: Recipe, change: Change, tmp_path: Path, config: Any, wrong: str
) -> None:
    folder = saved(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps(config))
    errors = problems(findings(change(digits, f"student.model={{pretrained: {folder}}}"), Here()))
    assert len(errors) == bool(wrong)
    assert all(error.startswith("student.model.pretrained: ") and wrong in error for error in errors)


def test_the_recipe_names_as_many_outputs_as_the_model_has(digits: Recipe, change: Change, tmp_path: Path) -> None:
    names = {str(number): f"LABEL_{number}" for number in range(3)}
    folder = saved(tmp_path / "model", model_type="vit", image_size=8, num_channels=1, id2label=names)

    def errors(labels: str) -> list[str]:
        return problems(
            findings(change(digits, f"teacher={{model: {{pretrained: {folder}, labels: {labels}}}}}"), Here())
        )

    assert errors("[a, b, c]") == []
    assert errors("[a, b]") == ["teacher.model.labels: names 2 outputs, the model has 3; name every one, in order"]
    assert errors("[]") == ["teacher.model.labels: names 0 outputs, the model has 3; name every one, in order"]


def test_what_the_hub_would_say_is_unknown_to_a_check_and_wrong_for_a_run(digits: Recipe, change: Change) -> None:
    recipe = change(digits, "teacher.model={pretrained: models/big}")
    errors = problems(findings(recipe, Here()))
    assert errors[0].startswith("teacher.model.pretrained: models/big: there is no such folder, and if it is a hub id")
    looked = findings(recipe, Here(waits_for_hub=False))
    assert not looked.problems
    assert "the hub cannot be reached" in looked.unknown[0]
    assert "the hub cannot be reached" not in looked.unknown[1], "ingest counts test records"


def test_a_commit_may_be_remembered_and_is_not_asked_for(digits: Recipe, change: Change) -> None:
    recipe = change(digits, f"teacher.model={{pretrained: owner/name, revision: {'a' * 40}}}")
    assert not findings(recipe, Here()).problems


def test_paths_of_other_machines_are_not_looked_for(digits: Recipe, change: Change) -> None:
    recipe = change(
        digits,
        "data.source={type: image-folder, path: /nowhere}",
        "teacher.model={pretrained: /nowhere}",
        "student.model={factory: 'nowhere:build'}",
    )
    result = findings(recipe, Here(data=False, models=False))
    assert not result.problems
    assert len(result.unknown) == 3


def test_a_tokenizer_is_looked_for(pydoc: Recipe, change: Change, tmp_path: Path) -> None:
    def errors(path: Path) -> list[str]:
        return problems(findings(change(pydoc, f"data.text.tokenizer.pretrained={path}"), Here()))

    key_path = "data.text.tokenizer.pretrained"
    assert errors(tmp_path) == [f"{key_path}: {tmp_path} has no tokenizer.json"]
    assert errors(tmp_path / "no")[0].startswith(f"{key_path}: {tmp_path / 'no'} does not exist")


def test_data_that_is_too_little_even_if_all_of_it_were_tested_on_is_told(
    digits: Recipe, change: Change, tmp_path: Path
) -> None:
    for number in range(6):
        path = tmp_path / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4), number).save(path)
    recipe = change(digits, f"data.source={{type: image-folder, path: {tmp_path}}}")
    (error,) = problems(findings(recipe, Here()))
    assert error.startswith(
        "gate.margin: all 6 images of the source together cannot rule out a loss of more than 5 points"
    )
    assert not findings(change(recipe, "gate.margin=0.9"), Here()).problems


def write_images(folder: Path, sizes: dict[str, int]) -> dict[str, str]:
    for split, count in sizes.items():
        for number in range(count):
            path = folder / split / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(split, number))
    return {"type": "image-folder", "path": str(folder)}


def write_parquet(folder: Path, sizes: dict[str, int]) -> dict[str, str]:
    folder.mkdir()
    for split, count in sizes.items():
        numbers = range(count)
        columns = {
            "image": [png(split, number) for number in numbers],
            "label": ["ab"[number % 2] for number in numbers],
        }
        pq.write_table(pa.table(columns), folder / f"{split or 'data'}.parquet")
    return {"type": "parquet", "path": str(folder)}


def png(split: str, number: int) -> bytes:
    """Another image for each split and number."""
    content = BytesIO()
    Image.new("RGB", (4, 4), (number % 256, number // 256, sum(split.encode()) % 256)).save(content, "png")
    return content.getvalue()


def write_texts(folder: Path, sizes: dict[str, int]) -> dict[str, str]:
    for split, count in sizes.items():
        (folder / split).mkdir(parents=True)
        for number in range(count):
            (folder / split / f"{number}.txt").write_text(f"{split} {number}")
    return {"type": "text-files", "path": str(folder)}


LAYOUTS: list[tuple[dict[str, int], bool]] = [
    # The records of each split, and whether those to test on are enough: with 5 points at 95 % it takes 73 images.
    ({"train": 200, "test": 4}, False),
    ({"train": 200, "test": 72}, False),
    ({"train": 10, "test": 73}, True),
    ({"training": 200, "eval": 4, "dev": 90}, False),
    ({"train": 10, "test": 80, "validation": 5}, True),
    ({"train": 200, "validation": 5}, True),
    ({"": 200}, True),
    ({"": 40}, False),
]


@pytest.mark.parametrize(
    ("content", "reason"), [("", ": a.csv has no header"), ("text,label\n", ""), ("\ufeff\n", ": a.csv has no header")]
)
def test_a_source_without_records_is_found(change: Change, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    source = {"type": "csv", "path": str(path)}
    empty = from_values({**TEXTS, "data": {"source": source}}, [], "here")
    told = f"{path} has no records{reason}. Give a source that has some."
    assert problems(findings(empty, Here())) == [f"data.source.path: {told}"]
    recipe = from_values({**TEXTS, "data": {"source": write_csv(tmp_path / "full.csv", 400)}}, [], "here")
    assert not problems(findings(recipe, Here()))
    stages = "[{data: more, train: {steps: 1}}, {train: {steps: 1}}]"
    beside = change(
        recipe, f"data_sets={{more: {{source: {json.dumps(source)}}}}}", f"student={{model: {BERT}, stages: {stages}}}"
    )
    assert f"data_sets.more.source.path: {told}" in problems(findings(beside, Here()))


def test_records_that_are_too_few_in_all_call_for_more_data(tmp_path: Path) -> None:
    recipe = from_values({**TEXTS, "data": {"source": write_csv(tmp_path / "a.csv", 59)}}, [], "here")
    (problem,) = problems(findings(recipe, Here()))
    assert problem.startswith("gate.margin: all 59 texts of the source together cannot rule out a loss")
    assert "data.test" not in problem


def write_csv(path: Path, count: int) -> dict[str, str]:
    path.write_text("text,label\n" + "".join(f"text {number},{'ab'[number % 2]}\n" for number in range(count)))
    return {"type": "csv", "path": str(path)}


@pytest.mark.parametrize("write", [write_images, write_parquet])
@pytest.mark.parametrize(("sizes", "enough"), LAYOUTS)
def test_the_images_that_the_source_calls_test_are_those_that_count(
    digits: Recipe, change: Change, tmp_path: Path, write: Write, sizes: dict[str, int], enough: bool
) -> None:
    recipe = change(digits, f"data.source={json.dumps(write(tmp_path / 'data', sizes))}", "data.test=0.5")
    result = findings(recipe, Here())
    (tmp_path / "records").mkdir()
    ingest(recipe.data, recipe.task, tmp_path / "records", lambda *_: None)
    tested = json.loads((tmp_path / "records" / "records.json").read_text())["counts"]["test"]
    has_own = bool({"test", "eval"} & sizes.keys())
    counted = f"{tested} test images" if has_own else f"all {sum(sizes.values())} images of the source together"
    assert enough == (not result.problems)
    if not enough:
        assert problems(result)[0].startswith(f"gate.margin: {counted} cannot rule out a loss of more than 5")
    assert any("test records" in text for text in result.unknown) == (enough and not has_own)


@pytest.mark.parametrize(("count", "enough"), [(2, False), (200, True)])
def test_the_documents_that_the_source_calls_test_are_those_that_count(
    pydoc: Recipe, change: Change, tmp_path: Path, count: int, enough: bool
) -> None:
    source = write_texts(tmp_path / "data", {"train": 400, "test": count})
    errors = problems(findings(change(pydoc, f"data.source={json.dumps(source)}"), Here()))
    assert enough == (not errors)
    assert enough or errors[0].startswith(f"data.test: {count} test examples are too few")


SHARES: list[tuple[dict[str, float], dict[str, int], list[str]]] = [
    ({}, {"train": 10, "test": 80}, []),
    (
        {"test": 0.2},
        {"train": 10, "test": 80},
        ["data.test: 0.2 is not used, since the source has a test split, of 80"],
    ),
    ({"test": 0.3}, {"train": 90, "validation": 8}, []),
    ({"test": 0.3}, {"": 90}, []),
    (
        {"test": 0.3, "validation": 0.1},
        {"train": 9, "test": 80, "validation": 1},
        [
            "data.test: 0.3 is not used",
            "data.validation: 0.1 is not used, since the source has a validation split, of 1",
        ],
    ),
]


@pytest.mark.parametrize("write", [write_images, write_parquet])
@pytest.mark.parametrize(("shares", "sizes", "notes"), SHARES)
def test_a_share_of_a_split_that_the_source_has_itself_is_noted(
    digits: Recipe, tmp_path: Path, write: Write, shares: dict[str, float], sizes: dict[str, int], notes: list[str]
) -> None:
    values = digits.model_dump(mode="json", by_alias=True)
    values["data"] = {"source": write(tmp_path / "data", sizes), "image": values["data"]["image"], **shares}
    result = findings(from_values(values, (), "test"), Here())
    assert len(result.notes) == len(notes)
    assert all(note.startswith(start) for note, start in zip(result.notes, notes, strict=True))


@pytest.mark.parametrize(("split", "expected"), [("test", []), ("", ["is 0, and the data has no test split"])])
def test_no_share_to_test_on_is_told_where_the_source_has_no_test_split(
    digits: Recipe, tmp_path: Path, split: str, expected: list[str]
) -> None:
    values = digits.model_dump(mode="json", by_alias=True)
    sizes = {"train": 900, split: 900} if split else {"": 900}
    source = write_images(tmp_path / "data", sizes)
    values["data"] = {"source": source, "image": values["data"]["image"], "test": 0}
    errors = findings(from_values(values, (), "test"), Here()).problems
    assert [message.partition(";")[0] for path, message in errors if path == ("data", "test")] == expected


def test_hardware_that_no_table_has_is_told(digits: Recipe, change: Change) -> None:
    unknown = findings(
        change(digits, "resources.teacher.hardware=h100", "resources.distill.hardware=L4"), Here()
    ).unknown
    (fact,) = [text for text in unknown if "hardware" in text]
    assert fact.startswith("resources.teacher.hardware: h100 is none of H200, H100, ")
    assert fact.endswith("; did you mean H100?")


def test_nothing_heavy_is_imported() -> None:
    look = "import sys; from pathlib import Path; from understudy.recipe.file import load;"
    look += "from understudy.steps.recipe_check import Here, findings;"
    look += f"assert not findings(load(Path({str(ROOT / 'recipes' / 'digits.yaml')!r})), Here()).problems;"
    look += "print({'torch', 'transformers', 'sklearn', 'mlflow'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
