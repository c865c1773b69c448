"""Each overlay, rendered."""

from typing import Any

import pytest

from tests.unit.manifests.rendered import OVERLAYS, built


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return built(f"overlays/{request.param}")
