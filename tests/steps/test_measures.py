"""What is taken over of an evaluation, whose process runs the models' own code."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.errors import UnderstudyError
from understudy.steps.measures import checked_measures

DIGESTS = {"teacher": "7" * 64, "student": "5" * 64}
EXAMPLES = 3


def model(digest: str) -> dict[str, Any]:
    return {
        "digest": digest,
        "parameters": 1,
        "flops": 2,
        "bytes": 3,
        "metrics": {"accuracy": 0.5, "nll": None},
        "intervals": {"accuracy": [0.25, 0.75], "nll": None},
        "calibration": [{"confidence": None, "accuracy": None, "weight": 0.0}],
        "latency": {
            "batch_size": 1,
            "median_ms": 1.0,
            "min_ms": 1.0,
            "p95_ms": 2.0,
            "throughput_per_s": 1000.0,
            "ratio_to_teacher": 1.0,
        },
    }


def measures() -> dict[str, Any]:
    return {
        "task": "image-classification",
        "split": "test",
        "examples": EXAMPLES,
        "data": {"counts": {"test": EXAMPLES}, "skipped": {}},
        "gate_metric": "accuracy",
        "confidence": 0.95,
        "hardware": {"device": "cpu", "cpu": "a processor", "cores": 2, "threads": 2, "torch": "2"},
        "models": {role: model(digest) for role, digest in DIGESTS.items()},
        "slices": [{"slice": "0", "examples": 3.0, "teacher": 0.5, "student": None}],
    }


def arrays() -> dict[str, Any]:
    names = ["weights.tokens", "trivial.nll", *(f"{role}.nll" for role in DIGESTS)]
    return {name: np.ones(EXAMPLES) for name in names}


def write(folder: Path, said: object, results: dict[str, Any]) -> Path:
    (folder / "measures.json").write_text(said if isinstance(said, str) else json.dumps(said))
    np.savez(folder / "per_example.npz", **results)
    return folder


def test_what_was_measured_is_taken_over(tmp_path: Path) -> None:
    assert checked_measures(write(tmp_path, measures(), arrays()), DIGESTS) == measures()


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("models", "student", "metrics", "accuracy"), "1.0", "accuracy: Input should be a valid number"),
        (("models", "student", "metrics", "<script>"), 1.0, "<script>.*: Input should be"),
        (("models", "student", "digest"), "6" * 64, "is of other models"),
        (("models", "champion"), model("4" * 64), "is of other models"),
        (("examples",), 4, r"per_example\.npz: .* of shape \(3,\)"),
        (("note",), "look at me", "note: Extra inputs are not permitted"),
        (("hardware", "cpu"), ["a"], "hardware.cpu: Input should be a valid string"),
    ],
)
def test_measures_that_say_something_else_are_refused(
    tmp_path: Path, place: tuple[str, ...], value: object, words: str
) -> None:
    said = measures()
    inner = said
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(UnderstudyError, match=f"^evaluate: .*{words}.*None of it was taken over"):
        checked_measures(write(tmp_path, said, arrays()), DIGESTS)


def test_a_pickle_is_never_unpacked(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    planted = np.array([Touch(ran)] * EXAMPLES, dtype=object)
    folder = write(tmp_path, measures(), {**arrays(), "student.nll": planted})
    with pytest.raises(UnderstudyError, match=r"per_example\.npz: Object arrays cannot be loaded"):
        checked_measures(folder, DIGESTS)
    (folder / "per_example.npz").write_bytes(pickle.dumps(Touch(ran)))
    with pytest.raises(UnderstudyError, match=r"per_example\.npz: "):
        checked_measures(folder, DIGESTS)
    assert not ran.exists()


class Touch:
    """Leaves a sign when it is unpacked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"champion.nll": np.ones(EXAMPLES)}, "is of champion, student, teacher, trivial, weights"),
        ({"student.nll": np.ones(EXAMPLES, dtype=np.float32)}, r"student\.nll is float32"),
        ({"student.nll": np.array(["a"] * EXAMPLES)}, r"student\.nll is <U1"),
        ({"student.nll": np.float64(1)}, r"student\.nll is float64 of shape \(\)"),
    ],
)
def test_results_of_another_form_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UnderstudyError, match=words):
        checked_measures(write(tmp_path, measures(), {**arrays(), **changes}), DIGESTS)


@pytest.mark.parametrize("missing", ["measures.json", "per_example.npz"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    (write(tmp_path, measures(), arrays()) / missing).unlink()
    with pytest.raises(UnderstudyError, match=f"^evaluate: {missing} is missing"):
        checked_measures(tmp_path, DIGESTS)


@pytest.mark.parametrize("text", ["", "[]", "NaN", '{"models": {"student": NaN}}', "\xff"])
def test_what_is_no_json_of_measures_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnderstudyError, match=r"^evaluate: measures\.json: "):
        checked_measures(write(tmp_path, text, arrays()), DIGESTS)
