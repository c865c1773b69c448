"""Check of the installation: a wheel built without the package's data is refused before anything runs."""

from collections.abc import Sequence
from pathlib import Path

from understudy.errors import UnderstudyError

FILES = (
    "components/__init__.py",
    "evaluate/report.html.j2",
    "pipelines/__init__.py",
    "plan/hardware.yaml",
    "recipes/digits.yaml",
    "recipes/llm.yaml",
    "recipes/chat.yaml",
    "recipes/pydoc.yaml",
)
"""Files that a build can leave out: data, and the folders that src/understudy only links to."""


def check(folder: Path = Path(__file__).parent, files: Sequence[str] = FILES) -> None:
    """Check that a package's files are installed.

    Args:
        folder: the package's folder.
        files: paths in it; by default this package's FILES.

    Raises:
        UnderstudyError: some are missing.
    """
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise UnderstudyError(
            f"{folder}: this installation of understudy is incomplete: {', '.join(missing)} missing. Build the wheel "
            "with make dist in a whole checkout, and install it again: pip install --force-reinstall --no-deps WHEEL"
        )
