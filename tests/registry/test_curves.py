from pathlib import Path

from understudy.registry.curves import Tail, points_of


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


def test_what_was_not_measured_is_no_value() -> None:
    assert list(points_of([{"step": 1, "loss": 0.5, "memory": None}, {"loss": 1.0}, 7])) == [{"step": 1, "loss": 0.5}]
