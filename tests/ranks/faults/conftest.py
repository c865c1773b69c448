"""A store with prepared examples, copied for every test, and the digests of undisturbed teachers."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ranks.faults import stage as stages
from tests.ranks.faults.stage import Stage


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with prepared examples."""
    stage = Stage(tmp_path_factory.mktemp("prepared") / "home")
    code, _, error = stages.ended(stage.steps(stages.recipe(), last="prepare"))
    assert code == 0, error
    return stage.home


@pytest.fixture
def stage(prepared: Path, tmp_path: Path) -> Iterator[Stage]:
    """A home with prepared examples, for this test alone."""
    shutil.copytree(prepared, tmp_path / "home")
    stage = Stage(tmp_path / "home")
    yield stage
    stage.clear()


@pytest.fixture(scope="session")
def undisturbed(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """By strategy, the digest of a teacher that was trained without a break."""
    digests: dict[str, str] = {}

    def digest(strategy: str) -> str:
        if strategy not in digests:
            home = tmp_path_factory.mktemp(strategy) / "home"
            shutil.copytree(prepared, home)
            code, out, error = stages.ended(Stage(home).steps(stages.recipe(strategy)))
            assert code == 0, error
            digests[strategy] = stages.digest(out)
        return digests[strategy]

    return digest
