import os
import subprocess
import sys
from pathlib import Path

import pytest

from understudy import revision
from understudy.models.user_code import environment, imported_libraries, user_code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("initial", [True, False])
def test_a_package_is_read_as_a_whole_and_not_imported(folder: Path, initial: bool) -> None:
    package = folder / f"mine{initial}"
    package.mkdir()
    for name in ("model", "other", *(["__init__"] if initial else [])):
        (package / f"{name}.py").write_text("raise SystemExit('imported')")
    sources = [user_code(f"{package.name}.model").identity["source"]]
    (package / "other.py").write_text("raise SystemExit('changed')")
    sources.append(user_code(f"{package.name}.model").identity["source"])
    (package / "other.py").rename(package / "renamed.py")
    sources.append(user_code(f"{package.name}.model").identity["source"])
    assert len(set(sources)) == 3


def test_a_single_module_is_read_alone(folder: Path) -> None:
    (folder / "lonely.py").write_text("raise SystemExit('imported')")
    before = user_code("lonely").identity
    (folder / "beside.py").write_text("")
    assert user_code("lonely").identity == before
    (folder / "lonely.py").write_text("raise SystemExit('changed')")
    assert user_code("lonely").identity != before


def test_imports_are_followed_through_the_users_own_code_to_libraries(folder: Path) -> None:
    (folder / "net_of_a_user.py").write_text(
        "import json\nfrom layers_of_a_user.head import head\n\ndef f():\n    import torch\n"
    )
    (folder / "layers_of_a_user").mkdir()
    (folder / "layers_of_a_user" / "__init__.py").touch()
    (folder / "layers_of_a_user" / "head.py").write_text(
        "import numpy.linalg\nfrom . import nothing\nimport not_there_at_all"
    )
    code = user_code("net_of_a_user")
    assert code.paths == (folder / "layers_of_a_user", folder / "net_of_a_user.py")
    assert code.libraries == {"torch", "numpy"}
    assert not code.imports_understudy
    before = code.identity
    (folder / "layers_of_a_user" / "head.py").write_text("import numpy.linalg")
    assert user_code("net_of_a_user").identity != before


def test_another_version_of_a_library_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "net_of_a_user.py").write_text("import numpy")
    before = user_code("net_of_a_user").identity
    monkeypatch.setattr(revision.metadata, "version", lambda name: "99")
    after = user_code("net_of_a_user").identity
    assert after["libraries"] == {"numpy": "numpy 99"}
    assert after["source"] == before["source"]


def test_an_installed_module_is_a_library_and_none_of_the_users_own() -> None:
    code = user_code("torch.nn")
    assert code.paths == ()
    assert code.libraries == {"torch"}


def test_understudy_is_named_and_not_followed(folder: Path) -> None:
    (folder / "net_of_a_user.py").write_text("from understudy.models.build import build")
    code = user_code("net_of_a_user")
    assert code.imports_understudy
    assert code.paths == (folder / "net_of_a_user.py",)


def test_a_file_that_is_no_python_counts_by_its_bytes(folder: Path) -> None:
    (folder / "broken.py").write_text("def (")
    before = user_code("broken").identity
    (folder / "broken.py").write_bytes(b"\0")
    assert user_code("broken").identity != before


def test_a_module_that_is_nowhere_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        user_code("no_such_module_at_all.model")


def test_the_libraries_of_a_pretrained_models_own_code() -> None:
    code = {"modeling_own.py": "import json, torch\nfrom transformers import PreTrainedModel\nfrom .x import y"}
    assert imported_libraries(code) == {"torch", "transformers"}
    assert imported_libraries({}) == set()


def test_a_recipes_folder_comes_before_the_one_that_the_command_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every process that is started with this environment, `python -m` included."""
    working_folder, recipes = tmp_path / "here", tmp_path / "recipes"
    for folder in (working_folder, recipes):
        folder.mkdir()
        (folder / "nets.py").write_text(f"print({folder.name!r})")
    (working_folder / "other.py").write_text("import nets; print('other')")
    monkeypatch.chdir(working_folder)
    command = [sys.executable, "-m", "other"]
    more = {**os.environ, **environment(recipes)}
    done = subprocess.run(command, env=more, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["recipes", "other"]
