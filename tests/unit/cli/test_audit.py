from pathlib import Path

import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.errors import InputError, UnderstudyError
from understudy.registry.audit import FIRST, digest_of, sealed


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    first = sealed({"what": "a"}, 1, FIRST)
    path = tmp_path / "audit.jsonl"
    path.write_text(f"{first}\n{sealed({'what': 'b'}, 2, digest_of(first))}\n")
    return path


def test_a_whole_audit_is_said_to_be_whole(exported: Path) -> None:
    done = CliRunner().invoke(app, ["audit", "verify", str(exported)])
    last = digest_of(exported.read_text().splitlines()[-1])
    assert (done.exit_code, done.stdout) == (0, f"2 lines, none changed or removed; the last digest is {last}\n")


def test_a_broken_one_fails_and_names_the_line(exported: Path) -> None:
    exported.write_text(exported.read_text().replace('"b"', '"c"'))
    done = CliRunner().invoke(app, ["audit", "verify", str(exported)])
    assert isinstance(done.exception, UnderstudyError)
    assert str(done.exception).startswith("audit, line 2: it was changed")


def test_lines_removed_from_the_end_are_found_by_a_noted_digest(exported: Path) -> None:
    first, second = exported.read_text().splitlines()
    exported.write_text(f"{first}\n")
    done = CliRunner().invoke(app, ["audit", "verify", str(exported), "--last", digest_of(second)])
    assert "lines were removed from the end" in str(done.exception)


def test_a_file_that_cannot_be_read_is_wrong_input(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["audit", "verify", str(tmp_path / "none")])
    assert isinstance(done.exception, InputError)


def test_a_local_registry_has_no_audit(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["--home", str(tmp_path), "audit", "export"])
    assert isinstance(done.exception, InputError)
    assert "only a server has" in str(done.exception)
