import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import understudy as package
from understudy import cli
from understudy.errors import Stopped, UnderstudyError

HEAVY = ("pydantic", "yaml", "torch", "mlflow", "numpy", "kfp", "transformers", "sklearn", "pyarrow", "matplotlib")


def test_the_help_imports_nothing_heavy() -> None:
    code = f"import sys, understudy.cli; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "[]\n"


def test_the_help_names_every_command_and_exit_code(understudy) -> None:
    outcome = understudy("--help")
    assert outcome.code == 0
    for word in ("doctor", "recipe", "store", "ui", "--home", "--tracking-uri", "130 stopped"):
        assert word in outcome.out


def test_the_version_is_the_packages(understudy) -> None:
    assert understudy("--version").out == f"understudy {package.__version__}\n"


@pytest.mark.parametrize(("error", "code"), [(UnderstudyError("it\nbroke"), 1), (Stopped("it\nbroke"), 130)])
def test_an_error_is_one_message_without_a_traceback(
    understudy, monkeypatch, error: UnderstudyError, code: int
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    outcome = understudy()
    assert (outcome.code, outcome.out, outcome.err) == (code, "", "error: it\nbroke\n")


def test_ctrl_c_exits_with_130(understudy, monkeypatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("understudy.recipe.file.schema", interrupt)
    outcome = understudy("recipe", "schema")
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


def test_a_wrong_option_is_wrong_input(understudy) -> None:
    outcome = understudy("store", "ls", "--nonsense")
    assert outcome.code == 2
    assert "No such option: --nonsense" in outcome.err


def test_the_home_comes_from_the_environment_or_the_option(understudy, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNDERSTUDY_HOME", str(tmp_path / "there"))
    assert f"{tmp_path / 'there' / 'store'}: no store here" in understudy("store", "ls").err
    assert f"{Path('here') / 'store'}: no store here" in understudy("--home", "here", "store", "ls").err


def on_a_terminal(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Run the command with a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    code = "from understudy.cli import main; main()"
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=theirs, stderr=theirs, cwd=cwd, env=environment
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # the terminal's other side is closed
            break
        if not chunk:
            break
        output += chunk
    os.close(ours)
    return process.wait(), output.decode()


def test_colours_are_for_terminals(understudy, make, tmp_path: Path) -> None:
    make()
    code, shown = on_a_terminal("store", "ls", cwd=tmp_path)
    assert code == 0
    assert "\x1b[" in shown
    assert "\x1b" not in understudy("store", "ls").out
    code, shown = on_a_terminal("store", "show", "nothing", cwd=tmp_path)
    assert code == 2
    assert shown.startswith("\x1b[1;31merror: \x1b[0m")
    assert "\x1b" not in understudy("store", "show", "nothing").err
