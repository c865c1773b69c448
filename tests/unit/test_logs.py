"""The log of a process: lines for a person, objects for a machine, and one logger's name per module."""

import ast
import json
import logging
import re
import sys
from pathlib import Path

import pytest

from understudy import logs
from understudy.errors import InputError

SOURCE = Path("src/understudy")
SERVER = Path("server/src/understudy_server")
FOR_A_PERSON = SOURCE / "cli"
COMMANDS = {SOURCE / "launch/kubernetes/collectives.py", SERVER / "gc.py", SERVER / "schema.py"}
"""Commands of Jobs, in images that lack the others: their output is their result."""


def logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    output = capsys.readouterr()
    assert output.out == ""
    return output.err.splitlines()


def test_text_has_time_level_logger_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    logging.getLogger("understudy.agent.node").warning("the nodes lost each other: %s", "timeout")
    (line,) = logged(capsys)
    pattern = (
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING understudy\.agent\.node: the nodes lost each other: timeout"
    )
    assert re.fullmatch(pattern, line)


def test_json_is_an_object_on_each_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(logs.VARIABLE, "json")
    logs.configure()
    logging.getLogger("understudy.x").info("two\nlines")
    try:
        raise ValueError("wrong")
    except ValueError:
        logging.getLogger("understudy.x").exception("failed")
    first, second = map(json.loads, logged(capsys))
    assert (first["level"], first["logger"], first["message"]) == ("INFO", "understudy.x", "two\nlines")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", first["time"])
    assert "traceback" not in first
    assert second["traceback"].endswith("ValueError: wrong")


def test_libraries_log_only_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("heed")
    logging.getLogger("loud.library").setLevel(logging.INFO)
    logging.getLogger("loud.library").info("chatter")
    logging.getLogger("understudy.x").info("progress")
    logging.getLogger("understudy.x").debug("detail")
    assert [line.rpartition(": ")[2] for line in logged(capsys)] == ["heed", "progress"]


def test_the_packages_of_a_server_log_as_this_one_does(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(packages=("understudy", "understudy_server"))
    for name in ("understudy.x", "understudy_server.x", "understudy_other.x"):
        logging.getLogger(name).info(name)
    assert [line.rpartition(": ")[2] for line in logged(capsys)] == ["understudy.x", "understudy_server.x"]


def test_configuring_twice_logs_a_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    logs.configure()
    logging.getLogger("understudy.x").warning("once")
    assert len(logged(capsys)) == 1


def test_a_copy_has_the_same_lines_and_is_given_up_where_it_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    logs.configure()
    logs.copy_to(tmp_path / "logs" / "copy.log")
    logs.copy_to(tmp_path / "file" / "copy.log")
    logging.getLogger("understudy.x").warning("a line")
    (line,) = logged(capsys)
    assert (tmp_path / "logs" / "copy.log").read_text() == f"{line}\n"
    logs.configure()
    logging.getLogger("understudy.x").warning("another line")
    assert "another" not in (tmp_path / "logs" / "copy.log").read_text()


def test_a_format_that_does_not_exist_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.VARIABLE, "xml")
    with pytest.raises(InputError, match=r"UNDERSTUDY_LOG: 'xml' is not a log format; take text or json"):
        logs.configure()


def test_a_module_logs_under_its_own_name_and_only_the_command_prints() -> None:
    for path in sorted([*SOURCE.rglob("*.py"), *SERVER.rglob("*.py")]):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if FOR_A_PERSON not in path.parents and path not in COMMANDS:
            assert not [call.lineno for call in calls if ast.unparse(call.func) == "print"], path
        if path != SOURCE / "logs.py":
            name = ".".join(path.parts[path.parts.index("src") + 1 :]).removesuffix(".py")
            loggers = {ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "logging.getLogger"}
            assert loggers <= {"__name__", repr(name)}, path


def test_a_line_is_written_once_where_another_library_has_configured_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As KFP's executor does, before a task's own code runs."""
    logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
    logs.configure()
    logging.getLogger("understudy.jobs").info("[node-1 rank 0] step 3")
    (line,) = logged(capsys)
    assert line.endswith("[node-1 rank 0] step 3")
