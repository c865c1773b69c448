"""Where pipelines/ is found: in the source tree, in the current folder, and where an image says that it is."""

from pathlib import Path

import pytest

from tests import ROOT
from understudy.cli import checkout
from understudy.errors import UnderstudyError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to look in, where the package lies in no source tree and neither does the current folder."""
    monkeypatch.setattr(checkout, "__file__", str(tmp_path / "lib" / "python" / "site-packages" / "u" / "cli" / "c.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(checkout.PLACE, raising=False)
    return tmp_path


def with_pipelines(folder: Path) -> Path:
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines" / "distillation.py").touch()
    return folder


def test_an_image_has_the_pipelines_whatever_the_current_folder_is(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(checkout.PLACE, str(with_pipelines(installed / "opt")))
    assert checkout.checkout() == installed / "opt"


def test_the_current_folder_comes_before_the_image(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(checkout.PLACE, str(with_pipelines(installed / "opt")))
    with_pipelines(installed)
    assert checkout.checkout() == installed


def test_pipelines_that_are_nowhere_are_told(installed: Path) -> None:
    with pytest.raises(UnderstudyError, match="start understudy in a checkout"):
        checkout.checkout()


def test_the_trainers_image_says_where_it_has_them() -> None:
    dockerfile = (ROOT / "images" / "trainer" / "Dockerfile").read_text()
    assert "COPY pipelines /opt/pipeline/pipelines" in dockerfile
    assert f"{checkout.PLACE}=/opt/pipeline " in dockerfile
