import os
from pathlib import Path

import pytest

from understudy.errors import UnderstudyError
from understudy.models.weight_files import INDEX
from understudy.steps.delivery import MODEL, deliver_model

WHOLE = (*sorted(MODEL), "model.safetensors")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The output folder of a training's ranks."""
    folder = tmp_path / "output"
    folder.mkdir()
    for name in WHOLE:
        (folder / name).write_text(f"of {name}")
    return folder


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    folder = tmp_path / "staged"
    folder.mkdir()
    return folder


def test_a_models_files_are_copied(output: Path, staged: Path) -> None:
    deliver_model(output, staged, None)
    assert {path.name: path.read_text() for path in staged.iterdir()} == {name: f"of {name}" for name in WHOLE}


def test_weights_may_be_several_files(output: Path, staged: Path) -> None:
    names = [INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    (output / "model.safetensors").unlink()
    for name in names:
        (output / name).write_text(f"of {name}")
    deliver_model(output, staged, None)
    assert {path.name for path in staged.iterdir()} == {*MODEL, *names}


def test_a_rank_that_still_writes_does_not_change_what_was_taken_over(output: Path, staged: Path) -> None:
    with (output / "model.safetensors").open("r+") as weights:
        deliver_model(output, staged, None)
        weights.write("CHANGED")
    assert (staged / "model.safetensors").read_text() == "of model.safetensors"


@pytest.mark.parametrize("name", ["modeling.py", "pytorch_model.bin", "folder", ".config.json"])
def test_what_is_no_file_of_a_model_is_refused(output: Path, staged: Path, name: str) -> None:
    (output / name).mkdir() if name == "folder" else (output / name).touch()
    with pytest.raises(UnderstudyError, match=f"{name}: is not a file of such a result"):
        deliver_model(output, staged, None)


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
def test_nothing_but_a_file_is_read(tmp_path: Path, output: Path, staged: Path, kind: str) -> None:
    path = output / "config.json"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "token").write_text("secret")
        path.symlink_to(tmp_path / ("token" if kind == "link" else "nowhere"))
    with pytest.raises(UnderstudyError, match=r"config\.json: (cannot be read as a file|is not a regular file)"):
        deliver_model(output, staged, None)
    assert not (staged / "config.json").exists()


def test_an_output_that_leads_elsewhere_is_refused(tmp_path: Path, output: Path, staged: Path) -> None:
    (tmp_path / "link").symlink_to(output)
    with pytest.raises(UnderstudyError, match="link: is not a folder"):
        deliver_model(tmp_path / "link", staged, None)
    (tmp_path / "attempt.9").symlink_to(tmp_path)
    with pytest.raises(UnderstudyError, match=r"attempt\.9/output: is not a folder"):
        deliver_model(tmp_path / "attempt.9" / "output", staged, None)
    with pytest.raises(UnderstudyError, match="gone: is not a folder"):
        deliver_model(tmp_path / "gone", staged, None)


@pytest.fixture
def initial(tmp_path: Path, output: Path) -> Path:
    """A fetched model with code of its own, from which a training began."""
    folder = tmp_path / "initial"
    folder.mkdir()
    for name in ("understudy.json", "config.json", "modeling.py"):
        (folder / name).write_text(f"of {name}")
    (folder / "model.safetensors").write_text("before")
    (output / "modeling.py").write_text("of modeling.py")
    return folder


def test_a_fetched_model_keeps_its_description_and_gets_new_weights(output: Path, staged: Path, initial: Path) -> None:
    deliver_model(output, staged, initial)
    assert (staged / "modeling.py").read_text() == "of modeling.py"
    assert (staged / "model.safetensors").read_text() == "of model.safetensors"


@pytest.mark.parametrize("name", ["understudy.json", "modeling.py"])
@pytest.mark.parametrize("change", ["changed", "removed"])
def test_a_fetched_model_of_which_a_rank_says_something_else_is_refused(
    output: Path, staged: Path, initial: Path, name: str, change: str
) -> None:
    (output / name).write_text("code of a rank") if change == "changed" else (output / name).unlink()
    with pytest.raises(UnderstudyError, match=f"{name}: differs from the file that training started from"):
        deliver_model(output, staged, initial)
