"""Where pipelines/ and components/ lie: they are source that is compiled, and no part of the wheel."""

from pathlib import Path

from understudy.errors import UnderstudyError


def checkout() -> Path:
    """The folder to import pipelines and components from: the checkout that this package runs from, or the current one.

    Raises:
        UnderstudyError: neither has them.
    """
    for place in (Path(__file__).parents[3], Path.cwd()):
        if (place / "pipelines" / "distillation.py").exists():
            return place
    raise UnderstudyError("pipelines/ is not here: it is no part of the wheel; start understudy in a checkout of it")
