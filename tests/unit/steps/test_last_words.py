"""A task's termination message in its pod's status."""

from pathlib import Path

import pytest

from understudy.steps import last_words


def test_the_last_words_are_no_longer_than_the_kubelet_keeps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.touch()
    monkeypatch.setattr(last_words, "PATH", path)
    last_words.leave("mend it" + " " * 5000)
    assert path.read_text().startswith("mend it")
    assert path.stat().st_size == last_words.LIMIT


def test_only_a_pod_has_last_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    monkeypatch.setattr(last_words, "PATH", path)
    last_words.leave("mend it")
    assert not path.exists()
