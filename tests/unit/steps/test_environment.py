import os
from pathlib import Path

import pytest

from understudy.steps.environment import HOME, open_store


def test_the_store_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    assert open_store().folder == tmp_path / "home" / "store"
    monkeypatch.delenv(HOME)
    monkeypatch.chdir(tmp_path)
    assert open_store().folder == Path(os.getcwd()) / ".understudy" / "store"
