from pathlib import Path

import pytest

from understudy.launch.spec import JobSpec


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    """A job of two processes in an empty folder."""
    return JobSpec(
        version="0",
        role="teacher",
        folder=str(tmp_path),
        examples="examples",
        initial=None,
        teacher=None,
        model={"type": "vit", "config": {"hidden_size": 8}},
        train={"steps": 1},
        distill=None,
        seed=7,
        nodes=1,
        processes=2,
        threads=3,
        device="cpu",
        logs=str(tmp_path / "logs"),
    )
