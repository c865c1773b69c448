from pathlib import Path

import pytest

from understudy.cli.outcome import _shortest


def test_a_path_is_as_one_would_type_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert _shortest(Path("store/report.html")) == "store/report.html"
    assert _shortest(tmp_path / "here" / "report.html") == "report.html"
    assert _shortest(tmp_path / "report.html") == str(tmp_path / "report.html")
    monkeypatch.chdir("/")  # as in a pod; who reads it is elsewhere
    assert _shortest(Path("/var/lib/report.html")) == "/var/lib/report.html"
