from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from understudy.cli import main
from understudy.store import Store
from understudy.store.files import sha256


@dataclass
class Outcome:
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def understudy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Outcome]:
    """Run the command in this process, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNDERSTUDY_HOME", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr("sys.argv", ["understudy", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, *capsys.readouterr())

    return run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The store that the command finds."""
    return Store(tmp_path / ".understudy" / "store")


def make(store: Store, content: str = "x", **inputs: str) -> str:
    """A finished step's object."""
    lease = store.acquire(sha256(content.encode()))
    assert lease is not None
    staged = lease.staging()
    (staged / "result.txt").write_text(content)
    return store.conclude(lease, "ingest", {}, staged, "records", inputs, {"rows": 3}, 2.0)


@pytest.fixture(name="make")
def make_fixture(store: Store) -> Callable[..., str]:
    return lambda content="x", **inputs: make(store, content, **inputs)
