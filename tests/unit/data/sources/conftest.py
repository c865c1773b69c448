from pathlib import Path

import pytest

from understudy.store.files import Fingerprints


@pytest.fixture
def fingerprints(tmp_path: Path) -> Fingerprints:
    folder = tmp_path / "fingerprints"
    folder.mkdir()
    return Fingerprints(folder)
