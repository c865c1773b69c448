from pathlib import Path

import pytest

RECIPE = """\
name: shapes
task: image-classification
data: {source: {type: image-folder, path: /data/shapes}}
teacher: {model: {type: vit}, train: {steps: 9}}
student: {model: {factory: "nets:small"}, train: {steps: 9}}
"""


def test_what_a_pod_needs_of_this_machine_is_told(understudy, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE)
    outcome = understudy("compile", "r.yaml", "--images", "r.example/ml/understudy:1")
    assert outcome.code == 0
    assert [Path(line).name for line in outcome.out.splitlines()] == ["shapes.yaml", "shapes.kubernetes.yaml"]
    assert [line.split(" must exist")[0] for line in outcome.err.splitlines()] == [
        "note: data.source.path: /data/shapes",
        "note: student.model.factory: nets:small",
    ]


@pytest.mark.parametrize("name", ["shapes.yaml", "shapes.kubernetes.yaml"])
def test_a_file_that_was_not_compiled_is_never_overwritten(understudy, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(RECIPE)
    command = ("compile", name, "--images", "r.example/ml/understudy:1")
    outcome = understudy(*command, "-o", ".")
    assert outcome.code == 2
    assert f"{name}: is not a compiled pipeline, and is not overwritten" in outcome.err
    assert (tmp_path / name).read_text() == RECIPE
    for _ in range(2):
        assert understudy(*command).code == 0
    assert sorted(path.name for path in (tmp_path / "compiled").iterdir()) == ["shapes.kubernetes.yaml", "shapes.yaml"]
    assert (tmp_path / name).read_text() == RECIPE


def test_a_folder_that_is_a_file_is_wrong_input(understudy, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE)
    (tmp_path / "file").touch()
    outcome = understudy("compile", "r.yaml", "--images", "r.example/ml/understudy:1", "-o", "file")
    assert outcome.code == 2
    assert "is a file, not a folder" in outcome.err


def test_what_lies_on_the_stores_volume_is_in_the_pods(understudy, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE.replace("/data/shapes", "/var/lib/understudy/data/shapes"))
    outcome = understudy("compile", "r.yaml", "--images", "r.example/ml/understudy:1")
    assert [line.split(" must exist")[0] for line in outcome.err.splitlines()] == [
        "note: student.model.factory: nets:small"
    ]


def test_a_data_set_on_the_hub_is_nowhere_on_this_machine(understudy, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE.replace("image-folder, path: /data/shapes", "datasets, path: org/shapes"))
    outcome = understudy("compile", "r.yaml", "--images", "r.example/ml/understudy:1")
    assert [line.split(" must exist")[0] for line in outcome.err.splitlines()] == [
        "note: student.model.factory: nets:small"
    ]


def test_pods_with_too_little_memory_are_told_before_anything_is_written(understudy, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE)
    small = ("--set", "resources.teacher.device=cpu", "--set", "resources.teacher.memory=1G")
    outcome = understudy("compile", "r.yaml", "--images", "r.example/ml/understudy:1", "-o", "out", *small)
    assert outcome.code == 2
    assert "resources.teacher.memory: 1G are 0.93 GiB, and weights, gradients and the optimiser's" in outcome.err
    assert not (tmp_path / "out").exists()
