from pathlib import Path

import pytest
from rich.console import Console

from understudy.cli.outcome import _shortest, show_verdict


def test_a_path_is_as_one_would_type_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert _shortest(Path("store/report.html")) == "store/report.html"
    assert _shortest(tmp_path / "here" / "report.html") == "report.html"
    assert _shortest(tmp_path / "report.html") == str(tmp_path / "report.html")
    monkeypatch.chdir("/")  # as in a pod; who reads it is elsewhere
    assert _shortest(Path("/var/lib/report.html")) == "/var/lib/report.html"


def test_what_has_to_be_known_first_comes_before_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    rule = {"rule": "size", "passed": True, "detail": "Size: fine."}
    verdict = {"approved": True, "cautions": ["The teacher is overfitted."], "rules": [rule], "control": None}
    show_verdict(Console(width=200), verdict)
    assert capsys.readouterr().out.splitlines() == [
        "approved",
        "  note  The teacher is overfitted.",
        "  pass  size: Size: fine.",
    ]
