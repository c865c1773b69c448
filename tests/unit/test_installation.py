"""An installation without some of its files says which, and how to mend it."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy
from understudy.errors import UnderstudyError
from understudy.installation import FILES, check

PACKAGE = Path(understudy.__file__).parent
UNREAD = {"py.typed", "metadata.yaml"}  # for type checkers, and for people


def test_this_installation_is_whole() -> None:
    check()


def test_the_files_of_another_package_are_looked_for_in_its_folder(tmp_path: Path) -> None:
    with pytest.raises(UnderstudyError, match=rf"{tmp_path}: .* accounts.ini missing"):
        check(tmp_path, ["accounts.ini"])


def test_every_file_that_is_no_code_is_looked_for() -> None:
    folders = [PACKAGE, *(path for path in PACKAGE.iterdir() if path.is_symlink())]
    files = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    data = {path for path in files if path.suffix not in (".py", ".pyc") and path.name not in UNREAD}
    assert {str(path.relative_to(PACKAGE)) for path in data} == {name for name in FILES if not name.endswith(".py")}
    linked = {f"{folder.name}/__init__.py" for folder in folders if (folder / "__init__.py").exists()}
    assert linked - {"understudy/__init__.py"} <= set(FILES)


@given(missing=st.sets(st.sampled_from(FILES), min_size=1))
def test_exactly_the_missing_files_are_named(missing: set[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("package")
    for name in set(FILES) - missing:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    with pytest.raises(UnderstudyError) as refused:
        check(folder)
    shutil.rmtree(folder)
    assert {name for name in FILES if name in str(refused.value)} == missing
    assert "pip install --force-reinstall" in str(refused.value)
