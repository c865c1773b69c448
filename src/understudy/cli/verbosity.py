"""-q and -v, accepted before the command and after it: people append them to the line that they have just typed."""

import copy
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from understudy import logs
from understudy.cli.settings import Settings

NAMES = ("quiet", "verbose")


class VerbosityOptions(TyperGroup):
    """A group of commands that each accept the group's -q and -v too."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        options = [parameter for parameter in self.params if isinstance(parameter, TyperOption)]
        global_options = [option for option in options if option.name in NAMES]
        for command in _commands(self):
            command.params = [*command.params, *map(_after_the_command, global_options)]


def apply(settings: Settings) -> Settings:
    """Set this process's log level from the settings."""
    logs.configure(logging.INFO if settings.verbose else logging.WARNING)
    return settings


def _commands(group: TyperGroup) -> Iterator[TyperCommand]:
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            yield from _commands(command)
        elif isinstance(command, TyperCommand):
            yield command


def _after_the_command(option: TyperOption) -> TyperOption:
    """The option as a command's: it changes the settings that the command reads, and is not passed to it."""
    copied = copy.copy(option)
    copied.expose_value = False
    copied.callback = _set
    return copied


def _set(ctx: Any, option: Any, value: bool) -> None:  # Typer's types of both are private
    if value and ctx.obj:  # there are no settings while a shell completes the line
        ctx.obj = apply(replace(ctx.obj, **{option.name: True}))
