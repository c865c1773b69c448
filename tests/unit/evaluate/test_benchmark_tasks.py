"""Tasks of lm-eval as data: what is read, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from understudy.errors import InputError
from understudy.evaluate.benchmark_tasks import Benchmark, benchmarks
from understudy.recipe import LmEval
from understudy.store.files import Fingerprints

TASK: dict[str, Any] = {
    "task": "colours",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "colours.jsonl"}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{thing}} is",
    "doc_to_target": 0,
    "doc_to_choice": ["green", "white"],
}


def write(folder: Path, name: str = "colours.yaml", **changes: Any) -> Path:
    """The folder of a task, with its documents."""
    folder.mkdir(exist_ok=True)
    (folder / "colours.jsonl").write_text(json.dumps({"thing": "grass"}))
    (folder / name).write_text(yaml.safe_dump({**TASK, **changes}))
    return folder


def read(folder: Path, *tasks: str, length: int = 64) -> list[Benchmark]:
    return benchmarks(LmEval(tasks=tasks or ("colours",), include=str(folder)), length)


def test_a_task_has_its_settings_and_its_files(tmp_path: Path) -> None:
    (task,) = read(write(tmp_path))
    assert task.files == {"colours/0.jsonl": tmp_path / "colours.jsonl"}
    assert task.config == {**TASK, "dataset_kwargs": {"data_files": {"test": ["colours/0.jsonl"]}}}


def test_settings_of_included_files_count_unless_the_task_has_its_own(tmp_path: Path) -> None:
    write(tmp_path, include=["a.yaml", "b.yaml"])
    (tmp_path / "a.yaml").write_text("description: a\ntarget_delimiter: a\ndoc_to_text: a\ntask_list: [x]\n")
    (tmp_path / "b.yaml").write_text("target_delimiter: b\n")
    (task,) = read(tmp_path)
    assert (task.config["description"], task.config["target_delimiter"]) == ("a", "b")
    assert task.config["doc_to_text"] == "{{thing}} is"
    assert not {"include", "task_list"} & set(task.config)


def test_a_folder_of_documents_is_read_whole(tmp_path: Path) -> None:
    write(tmp_path, dataset_path="documents", dataset_kwargs={})
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "test.jsonl").write_text("{}")
    (tmp_path / "documents" / "README.md").write_text("configs: code")
    (task,) = read(tmp_path)
    assert task.files == {"colours/test.jsonl": tmp_path / "documents" / "test.jsonl"}
    assert task.config["dataset_path"] == "colours"


def test_the_identity_is_of_contents_wherever_they_lie(tmp_path: Path) -> None:
    fingerprints = Fingerprints(tmp_path / "fingerprints")
    before = read(write(tmp_path / "here"))[0].identity(fingerprints)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert read(tmp_path / "there")[0].identity(fingerprints) == before
    assert str(tmp_path) not in json.dumps(before)
    (tmp_path / "there" / "colours.jsonl").write_text(json.dumps({"thing": "snow"}))
    assert read(tmp_path / "there")[0].identity(fingerprints) != before
    assert read(write(tmp_path / "here", doc_to_text="{{thing}}"))[0].identity(fingerprints) != before


def test_an_unknown_task_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, "more.yaml", task="more")
    with pytest.raises(InputError, match=r"^evaluate\.lm_eval\.tasks: .* has no task others; it has colours, more$"):
        read(tmp_path, "others")
    with pytest.raises(InputError, match=r"^evaluate\.lm_eval\.include: .*nowhere is no folder"):
        read(tmp_path / "nowhere")
    write(tmp_path, "twice.yaml")
    with pytest.raises(InputError, match=r"twice\.yaml: the task colours is in .*colours\.yaml, too"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("task: [", r"colours\.yaml:1: not YAML"),
        ("task: colours\n\t- x", r"colours\.yaml:2: not YAML"),
        ("task: colours\ndoc_to_text: 2026-01-01", r"2026.* is a date: put it in quotes"),
        ("task: colours\ndoc_to_target: .nan", r"colours\.yaml:1: not the YAML of a task"),
        ("- task", "has no settings"),
        ("task: colours\nx: !!python/object/apply:os.system [ls]", "not YAML: could not determine a constructor"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "colours.yaml").write_text(text)
    with pytest.raises(InputError, match=reason):
        read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"dataset_path": "org/data"},
            "org/data is neither a folder nor one of json, csv, parquet, and nothing is fetch",
        ),
        ({"dataset_path": None}, "None is neither a folder"),
        ({"dataset_kwargs": {"data_files": {"test": "none.jsonl"}}}, r"there is no file none\.jsonl"),
        ({"dataset_kwargs": {"data_files": "https://host/x.jsonl"}}, "there is no file https"),
        ({"dataset_kwargs": {}}, "json needs dataset_kwargs"),
        ({"dataset_kwargs": {"data_files": "colours.jsonl"}}, "test_split: data_files have no split test, only train"),
        (
            {"dataset_kwargs": {"data_files": {"test": "colours.jsonl"}, "token": "x"}},
            "dataset_kwargs: token is refused",
        ),
        (
            {"output_type": "multiple_choices"},
            "output_type: multiple_choices is none of loglikelihood, multiple_choice",
        ),
        ({"test_split": None}, "names no documents to score; give test_split"),
        ({"class": "x"}, "class: a task in Python cannot be run here"),
        ({"unsafe_code": True}, "unsafe_code: a task that runs what models write"),
        ({"doc_to_image": ["x"]}, "doc_to_image: a task with images"),
        ({"metric_list": [{"metric": "bertscore", "hf_evaluate": True}]}, "is no metric of lm-eval's own"),
        ({"include": "../../x.yaml"}, r"include: \.\./\.\./x\.yaml is no file in"),
        ({"include": "colours.yaml"}, "includes itself"),
        ({"output_type": "generate_until"}, r"max_gen_toks is 256 by default, and sequences have 64 tokens"),
        ({"output_type": "generate_until", "generation_kwargs": {"max_tokens": 64}}, "max_gen_toks is 64, and"),
        ({"output_type": "generate_until", "generation_kwargs": {"do_sample": True}}, "do_sample: True is refused"),
        ({"output_type": "generate_until", "generation_kwargs": {"temperature": 0.7}}, "answers are greedy"),
        ({"output_type": "generate_until", "generation_kwargs": {"num_beams": 4}}, "num_beams: 4 is refused"),
    ],
)
def test_what_cannot_be_asked_here_is_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    write(tmp_path, **changes)
    with pytest.raises(InputError, match=reason) as caught:
        read(tmp_path)
    assert "colours.yaml" in str(caught.value)


def test_python_functions_are_refused_with_their_line_and_never_imported(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef process(doc): return doc")
    with (tmp_path / "colours.yaml").open("a") as stream:
        stream.write("process_docs: !function evil.process\n")
    line = len((tmp_path / "colours.yaml").read_text().splitlines())
    with pytest.raises(InputError, match=rf"!function evil\.process \(line {line} of its file\) is code"):
        read(tmp_path)
    assert not (tmp_path / "ran").exists()
