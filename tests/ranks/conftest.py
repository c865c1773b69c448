"""One pool of ranks for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.ranks.pool import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    pool = Ranks(4)
    yield pool
    pool.close()
