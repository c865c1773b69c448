"""Where pipelines/ and components/ are: source that is compiled, not part of the wheel."""

import os
from pathlib import Path

from understudy.errors import UnderstudyError

PLACE = "UNDERSTUDY_CHECKOUT"
"""Where the trainer's image has them, whatever an image on top of it makes of the current folder."""


def checkout() -> Path:
    """The folder to import pipelines and components from: the checkout that this package runs from, or the current one.

    Raises:
        UnderstudyError: neither has them, nor has the image.
    """
    image = [Path(os.environ[PLACE])] if PLACE in os.environ else []
    for place in (Path(__file__).parents[3], Path.cwd(), *image):
        if (place / "pipelines" / "distillation.py").exists():
            return place
    raise UnderstudyError("pipelines/ is not here: it is not part of the wheel; start understudy in a checkout")
