"""How a rank says that it ended."""

import signal
from pathlib import Path

import pytest

from tests.unit.jobs.specs import job_spec
from understudy.agent import training, worker
from understudy.errors import Fenced, InputError, UnderstudyError
from understudy.jobs.outcome import Outcome
from understudy.models.user_code import user_code


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [(InputError("no such layer"), 2, "reported"), (Fenced("another run has taken this step over"), 1, "lost")],
    ids=["a user's mistake", "somebody else is at it, which no restart needs to fear"],
)
def test_a_failed_rank_reports_whose_fault_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: UnderstudyError, code: int, kind: str
) -> None:
    def run(*_: object) -> None:
        raise error

    spec = job_spec(tmp_path, version="", logs=str(tmp_path))
    monkeypatch.setattr("sys.argv", ["worker", str(spec.write())])
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(worker, "die_with_parent", lambda: None)
    monkeypatch.setattr(training, "run", run)
    before = signal.getsignal(signal.SIGINT)
    assert worker.main() == code
    signal.signal(signal.SIGINT, before)
    outcome = Outcome.read(spec.outcome(0))
    assert outcome == Outcome(code, str(error), kind)  # type: ignore[arg-type]


def test_a_rank_of_another_image_reports_it_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.json").write_text('{"version": "9.9"}')
    monkeypatch.setattr("sys.argv", ["worker", str(tmp_path / "job.json")])
    monkeypatch.setattr(worker, "die_with_parent", lambda: None)
    before = signal.getsignal(signal.SIGINT)
    assert worker.main() == 1
    signal.signal(signal.SIGINT, before)
    assert "understudy 9.9 wrote this job" in capsys.readouterr().err


def test_a_rank_trains_only_the_code_that_the_key_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's and a trainer's image may have different versions of a user's module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "nets_of_two_images.py"
    module.write_text("def small(): ...")
    sources = {"nets_of_two_images:small": user_code("nets_of_two_images").source}
    worker._refuse_other_factories(sources)
    module.write_text("def small(): return 3")
    with pytest.raises(InputError, match="nets_of_two_images:small: differs from the code"):
        worker._refuse_other_factories(sources)
    with pytest.raises(InputError, match=r"no_such_nets:small: there is no module no_such_nets here"):
        worker._refuse_other_factories({"no_such_nets:small": "0"})
