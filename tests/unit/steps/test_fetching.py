from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from understudy.errors import Fenced, UnderstudyError
from understudy.models import pretrained
from understudy.recipe import PretrainedModel
from understudy.steps.fetching import fetched_model
from understudy.steps.step import Work


def test_what_a_launcher_before_has_fetched_is_not_fetched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched: list[Path] = []

    def fetch(model: object, examples: object, folder: Path, *_: object) -> None:
        fetched.append(folder)
        (folder / "half").touch()
        if len(fetched) == 1:
            raise UnderstudyError("the hub is away")
        (folder / "config.json").touch()

    monkeypatch.setattr(pretrained, "fetch", fetch)
    lease = SimpleNamespace(folder=tmp_path / "1.holder", check=lambda: None)
    lease.folder.mkdir()
    work = cast(Work, SimpleNamespace(lease=lease, progress=lambda *_, **__: None, input=lambda _: tmp_path))
    model = PretrainedModel(pretrained=str(tmp_path))
    with pytest.raises(UnderstudyError, match="away"):
        fetched_model(work, model, "teacher.model", "new", tmp_path)
    lease.folder = lease.folder.rename(tmp_path / "2.holder")
    for _ in range(2):
        initial = fetched_model(work, model, "teacher.model", "new", tmp_path)
        assert initial is not None
        assert {path.name for path in initial.iterdir()} == {"config.json", "half"}
    assert len(fetched) == 2
    assert [path.parent for path in tmp_path.rglob("initial")] == [tmp_path], "half a model is not kept"


def test_a_launcher_that_lost_its_lease_leaves_the_model_of_the_next_one_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lost() -> None:
        raise Fenced("another run has taken this step over")

    monkeypatch.setattr(pretrained, "fetch", lambda *_: None)
    lease = SimpleNamespace(folder=tmp_path / "1.holder", check=lost)
    lease.folder.mkdir()
    work = cast(Work, SimpleNamespace(lease=lease, progress=lambda *_, **__: None, input=lambda _: tmp_path))
    with pytest.raises(Fenced):
        fetched_model(work, PretrainedModel(pretrained=str(tmp_path)), "teacher.model", "new", tmp_path)
    assert not (tmp_path / "initial").exists()
