from pathlib import Path
from typing import Any

import pytest

from understudy.registry.curves import Tail, points_of, send, unreported
from understudy.registry.tracking import Value


def test_half_a_line_waits_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text('{"step": 1}\n{"st')
    assert tail.read() == [{"step": 1}]
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "lo{"step": 3}\n{"step": 4}\n')
    assert tail.read() == [{"step": 2}, {"step": 4}]
    path.write_text('{"step": 9}\n')
    assert tail.read() == [{"step": 9}]


def test_an_unmeasured_metric_has_no_value() -> None:
    assert list(points_of([{"step": 1, "loss": 0.5, "memory": None}, {"loss": 1.0}, 7])) == [{"step": 1, "loss": 0.5}]


def test_a_file_of_any_size_is_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    tail = Tail(path)
    with path.open("ab") as stream:
        stream.truncate(40 * 2**20)
        stream.seek(0, 2)
        stream.write(b'\n{"step": 2}\n')
    assert [point for _ in range(4) for point in tail.read()] == [{"step": 1}, {"step": 2}]


def test_the_validation_of_a_reported_step_is_still_to_be_reported() -> None:
    point = {"step": 4, "loss": 0.5, "grad_norm": 1.0, "validation_loss": 0.7, "validation_accuracy": 0.2}
    assert unreported(point) == {"step": 4, "validation_loss": 0.7, "validation_accuracy": 0.2}
    assert unreported({"step": 4, "loss": 0.5}) == {"step": 4}
    assert unreported({"step": 4, "loss": 0.5, "skipped": 2, "passed_over": 5}) == {
        "step": 4,
        "skipped": 2,
        "passed_over": 5,
    }


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"step": "x"}', '{"step": NaN}', '{"step": 1e400}', '{"step": 1, "time": Infinity}', "[1]"]
)
def test_an_invalid_point_is_left_out(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{line}\n{{"step": 1, "loss": NaN, "memory": {10**400}}}\n')
    [point] = Tail(path).read()
    assert sorted(point) == ["loss", "step"]


def test_guards_have_metrics_of_their_own() -> None:
    class Server:
        """The logged metrics."""

        def log(self, _run_id: str, values: list[Value]) -> None:
            self.logged = {value.key: value.value for value in values}

    server: Any = Server()
    send(server, "run", "causal-lm", [{"step": 7, "learning_rate": 0.1, "skipped": 2, "passed_over": 5, "time": 1.0}])
    assert server.logged == {"learning_rate": 0.1, "skipped_steps": 2.0, "batches_passed_over": 5.0}
