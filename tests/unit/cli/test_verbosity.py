import logging

import pytest
import typer

from understudy import cli
from understudy.cli.settings import Settings


@pytest.fixture
def received_settings(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that commands find: `one`, and `two` in a group."""
    received: list[Settings] = []
    app, group = typer.Typer(cls=cli.VerbosityOptions), typer.Typer()
    app.callback()(cli.understudy)

    @app.command()
    @group.command("two")
    def one(ctx: typer.Context, name: str = "") -> None:
        received.append(ctx.obj)

    app.add_typer(group, name="group")
    monkeypatch.setattr(cli, "app", app)
    return received


@pytest.mark.parametrize(
    ("line", "quiet", "verbose"),
    [
        ("one", False, False),
        ("-v one", False, True),
        ("one -v", False, True),
        ("one --name x --verbose", False, True),
        ("one -q", True, False),
        ("-q one", True, False),
        ("-q group two -v", True, True),
        ("group two --quiet", True, False),
    ],
)
def test_loudness_is_taken_before_and_after_the_command(
    understudy, received_settings: list[Settings], line: str, quiet: bool, verbose: bool
) -> None:
    assert understudy(*line.split()).code == 0
    assert [(settings.quiet, settings.verbose) for settings in received_settings] == [(quiet, verbose)]
    assert logging.getLogger("understudy").level == (logging.INFO if verbose else logging.WARNING)


def test_every_command_says_that_it_takes_them(understudy) -> None:
    for command in (("run",), ("doctor",), ("store", "ls"), ("recipe", "show"), ("ui",)):
        shown = understudy(*command, "--help").out
        assert "--verbose" in shown, command
        assert "--quiet" in shown, command
