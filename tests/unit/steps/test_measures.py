"""Validation of an evaluation's result, whose process runs the models' own code."""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.errors import UnderstudyError
from understudy.evaluate.contents import Measures
from understudy.recipe import Recipe
from understudy.steps.measures import _check_correct, checked_measures

DIGESTS = {"teacher": "7" * 64, "student": "5" * 64}
EXAMPLES = 3
SINGLE = (
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }".ljust(127) + b"\n" + bytes(8)
)
"""A file of one array, which numpy gives out without an archive around it."""
CONFUSION = np.array([[1.0, 0.0], [1.0, 1.0]])
TEXT = {"task": "causal-lm", "eos_id": 0, "sequence_length": 4, "vocab_size": 9}
ONE, MANY, NONE = np.ones(EXAMPLES), np.ones((EXAMPLES, 15)), np.zeros((0, 0))


@pytest.fixture
def check(tmp_path: Path, digits: Recipe) -> Callable[[], Measures]:
    """Validates the files in the test's folder."""
    for digest in DIGESTS.values():
        (tmp_path / digest).mkdir()
        (tmp_path / digest / "model.safetensors").write_bytes(b"abc")
    models = {role: tmp_path / digest for role, digest in DIGESTS.items()}
    described = {"task": "image-classification", "counts": {"test": EXAMPLES}, "skipped": {}, "labels": ["cat", "dog"]}
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "examples.json").write_text(json.dumps(described))
    np.save(tmp_path / "examples" / "test.labels.npy", np.zeros(EXAMPLES, dtype=np.int64))
    results = {role: tmp_path / f"{role}.results.npz" for role in DIGESTS}
    return lambda: checked_measures(tmp_path, digits, models, tmp_path / "examples", results)


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
        "reference": "teacher",
        "confidence": 0.95,
        "hardware": {
            "device": "cpu",
            "cpu": "a processor",
            "cores": 2,
            "threads": 2,
            "processes": 1,
            "torch": "2",
            "precision": "fp32",
        },
        "models": {role: model(digest) for role, digest in DIGESTS.items()},
        "slices": [{"slice": "0", "examples": 3.0, "teacher": 0.5, "student": None}],
        "confusion": {"labels": ["cat", "dog"], "counts": [[1, 0], [1, 1]]},
    }


def arrays() -> dict[str, Any]:
    arrays_by_name = {"weights.tokens": ONE, "weights.bytes": 0 * ONE}
    for role in (*DIGESTS, "trivial"):
        arrays_by_name |= {f"{role}.nll": ONE, f"{role}.correct": ONE}
        arrays_by_name |= {f"{role}.confidence_{part}": MANY for part in ("count", "sum", "correct")}
    return arrays_by_name | {f"{role}.completions": NONE for role in DIGESTS}


def results_of(role: str) -> dict[str, Any]:
    names = ("nll", "correct", *(f"confidence_{part}" for part in ("count", "sum", "correct")))
    return {**{name: arrays()[f"{role}.{name}"] for name in names}, "confusion": CONFUSION, "completions": NONE}


def write(folder: Path, content: object, results: dict[str, Any]) -> Path:
    (folder / "measures.json").write_text(content if isinstance(content, str) else json.dumps(content))
    np.savez(folder / "per_example.npz", **results)
    for role in DIGESTS:
        np.savez(folder / f"{role}.results.npz", **results_of(role))
    return folder


def test_what_was_measured_is_taken_over(tmp_path: Path, check: Callable[[], Measures]) -> None:
    write(tmp_path, measures(), arrays())
    assert check() == measures()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("models", "student", "metrics", "accuracy"), "1.0", "accuracy': Input should be a valid number"),
        (("models", "student", "metrics", "<script>"), 1.0, "<script>.*: Input should be"),
        (("models", "student", "metrics", "\x1b[2J"), 1.0, r"\\x1b\[2J.*: Input should be"),
        (("models", "student", "metrics", "accuracy"), float("nan"), "has a number that is not finite"),
        (("models", "student", "latency", "median_ms"), float("inf"), "has a number that is not finite"),
        (("models", "student", "digest"), "6" * 64, "has the measures of other models"),
        (("models", "champion"), model("4" * 64), "has the measures of other models"),
        (("models", "student", "bytes"), 1, "gives a model another size than its file has"),
        (("examples",), 4, "has 4 examples, and the test split has 3"),
        (("data", "counts"), {"test": 9}, "has another split or other data"),
        (("split",), "train", "has another split or other data"),
        (("hardware", "cpu"), "fast\n\n**Approved by everybody.**", "hardware.cpu is not a name"),
        (("hardware", "device"), "![](https://example.com/seen.png)", "hardware.device is not a name"),
        (("hardware", "torch"), "<img src=x>", "hardware.torch is not a name"),
        (("examples",), 0, "or no examples"),
        (("reference",), "control", "compares the student with another teacher"),
        (("gate_metric",), "nll", "has another task, metric or confidence"),
        (("confidence",), 0.5, "has another task, metric or confidence"),
        (("note",), "look at me", "note': Extra inputs are not permitted"),
        (("confusion", "counts"), [[1, 0]], "confusion differs from the student"),
        (("confusion", "counts"), [[1, 0], [1]], "confusion differs from the student"),
        (("confusion", "counts"), [[5, 0], [-2, 0]], "confusion differs from the student"),
        (("confusion", "counts"), [[2, 0], [1, 1]], "confusion differs from the student"),
        (("confusion", "labels"), ["cat", "cow"], "confusion differs from the student"),
        (("confusion",), None, "confusion differs from the student"),
        (("confusion", "labels"), [1, 2], "confusion.labels.0': Input should be a valid string"),
        (("hardware", "cpu"), ["a"], "hardware.cpu': Input should be a valid string"),
    ],
)
def test_measures_that_say_something_else_are_refused(
    tmp_path: Path, check: Callable[[], Measures], path: tuple[str, ...], value: object, words: str
) -> None:
    changed = measures()
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    write(tmp_path, changed, arrays())
    with pytest.raises(UnderstudyError, match=f"^evaluate: .*{words}.*The result was discarded"):
        check()


def test_a_pickle_is_never_unpacked(tmp_path: Path, check: Callable[[], Measures]) -> None:
    ran = tmp_path / "ran"
    write(tmp_path, measures(), {**arrays(), "student.nll": np.array([Touch(ran)] * EXAMPLES, dtype=object)})
    with pytest.raises(UnderstudyError, match=r"per_example\.npz: Object arrays cannot be loaded"):
        check()
    (tmp_path / "per_example.npz").write_bytes(pickle.dumps(Touch(ran)))
    with pytest.raises(UnderstudyError, match=r"per_example\.npz: "):
        check()
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
        ({"champion.nll": ONE}, "has unexpected arrays"),
        ({"student": ONE}, "has unexpected arrays"),
        ({"student.correct": None}, "has unexpected arrays"),
        ({"student.nll": ONE.astype(np.float32)}, r"student\.nll is float32"),
        ({"weights.tokens": 2 * ONE}, "has examples of another length"),
        ({"weights.bytes": ONE}, "has examples of another length"),
        ({"student.correct": 5 * ONE}, "student has an impossible loss or number of correct predictions"),
        ({"teacher.correct": -ONE}, "teacher has an impossible loss or number of correct predictions"),
        ({"student.nll": -ONE}, "student has an impossible loss or number of correct predictions"),
        ({"trivial.nll": np.ones(10_000)}, r"trivial\.nll\.npy' has 80,\d+ bytes"),
        ({"student.nll": np.array(["a"] * EXAMPLES)}, r"student\.nll is <U1"),
        ({"student.nll": np.float64(1)}, r"student\.nll is float64 of shape \(\)"),
        ({"student.confidence_sum": np.ones((EXAMPLES, 2))}, r"confidence_sum is float64 of shape \(3, 2\)"),
    ],
)
def test_results_of_another_form_are_refused(
    tmp_path: Path, check: Callable[[], Measures], changes: dict[str, Any], words: str
) -> None:
    changed = {name: array for name, array in {**arrays(), **changes}.items() if array is not None}
    write(tmp_path, measures(), changed)
    with pytest.raises(UnderstudyError, match=words):
        check()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nll": 2 * ONE}, r"per_example\.npz: differs from teacher\.results\.npz in the results of teacher"),
        ({"confidence_sum": 2 * MANY}, "in the results of teacher"),
        ({"confusion": -CONFUSION}, r"teacher\.results\.npz: confusion is not a count"),
        ({"confusion": CONFUSION / 2}, r"teacher\.results\.npz: confusion is not a count"),
        ({"confusion": 2 * CONFUSION}, r"teacher\.results\.npz: confusion is not a count"),
        ({"confusion": np.nan * CONFUSION}, r"teacher\.results\.npz: confusion is not a count"),
        ({"confusion": np.zeros((0, 0))}, r"confusion is float64 of shape \(0, 0\)"),
        ({"confusion": None}, "has unexpected arrays"),
        ({"completions": None}, "has unexpected arrays"),
        ({"completions": ONE}, r"completions is float64 of shape \(3,\)"),
        ({"teacher.nll": ONE}, "has unexpected arrays"),
    ],
)
def test_results_that_are_kept_are_those_of_this_evaluation(
    tmp_path: Path, check: Callable[[], Measures], changes: dict[str, Any], words: str
) -> None:
    write(tmp_path, measures(), arrays())
    changed = {name: array for name, array in {**results_of("teacher"), **changes}.items() if array is not None}
    np.savez(tmp_path / "teacher.results.npz", **changed)
    with pytest.raises(UnderstudyError, match=words):
        check()


def test_what_is_no_number_on_both_sides_is_the_same(tmp_path: Path, check: Callable[[], Measures]) -> None:
    write(tmp_path, measures(), arrays() | {"teacher.nll": np.nan * ONE})
    np.savez(tmp_path / "teacher.results.npz", **results_of("teacher") | {"nll": np.nan * ONE})
    assert check() == measures()


def test_an_archive_that_would_fill_the_memory_is_not_unpacked(tmp_path: Path, check: Callable[[], Measures]) -> None:
    write(tmp_path, measures(), {name: array for name, array in arrays().items() if name != "student.nll"})
    huge = (
        np.lib.format.magic(1, 0)
        + b"v\x00"
        + b"{'descr': '<f8', 'fortran_order': False, 'shape': (2000000,)}".ljust(118)
    )
    with zipfile.ZipFile(tmp_path / "per_example.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("student.nll.npy", huge + bytes(16_000_000))
    assert (tmp_path / "per_example.npz").stat().st_size < 100_000
    with pytest.raises(UnderstudyError, match=r"student\.nll\.npy' has 16,000,128 bytes"):
        check()


def test_documents_are_as_long_as_the_examples_have_them(tmp_path: Path, check: Callable[[], Measures]) -> None:
    (tmp_path / "examples" / "test.labels.npy").unlink()
    described = {**TEXT, "counts": {"test": EXAMPLES}, "skipped": {}}
    (tmp_path / "examples" / "examples.json").write_text(json.dumps(described))
    np.save(tmp_path / "examples" / "test.tokens.npy", np.zeros(11, np.uint16))
    np.save(tmp_path / "examples" / "test.offsets.npy", np.array([0, 4, 6, 11]))
    np.save(tmp_path / "examples" / "test.bytes.npy", np.array([9, 5, 12]))
    expected = {**measures(), "confusion": None}
    lengths = {"weights.tokens": np.array([4.0, 2.0, 5.0]), "weights.bytes": np.array([9.0, 5.0, 12.0])}

    def leave(completions: np.typing.NDArray[np.float64]) -> None:
        write(tmp_path, expected, arrays() | lengths | {f"{role}.completions": completions for role in DIGESTS})
        for role in DIGESTS:
            extra = {"confusion": np.zeros((0, 0)), "completions": completions}
            np.savez(tmp_path / f"{role}.results.npz", **results_of(role) | extra)

    leave(np.array([[0.0, 8.0], [np.nan, np.nan]]))  # of the documents with 4 tokens or more
    assert check() == expected
    for wrong in (9.0, -1.0, 0.5, np.inf):
        leave(np.array([[0.0, 8.0], [np.nan, wrong]]))
        with pytest.raises(
            UnderstudyError, match=r"teacher\.results\.npz: completions has a number that is not a token"
        ):
            check()
    lengths["weights.tokens"] = np.array([40.0, 2.0, 5.0])
    leave(np.array([[0.0, 8.0], [np.nan, np.nan]]))
    with pytest.raises(UnderstudyError, match="has examples of another length"):
        check()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_there_twice_is_refused(tmp_path: Path, check: Callable[[], Measures]) -> None:
    write(tmp_path, measures(), arrays())
    with zipfile.ZipFile(tmp_path / "per_example.npz", "a") as archive:
        archive.writestr("student.nll.npy", archive.read("teacher.nll.npy"))
    with pytest.raises(UnderstudyError, match="has unexpected arrays"):
        check()


@pytest.mark.parametrize("missing", ["measures.json", "per_example.npz", "teacher.results.npz"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, check: Callable[[], Measures], missing: str) -> None:
    (write(tmp_path, measures(), arrays()) / missing).unlink()
    with pytest.raises(UnderstudyError, match=f"^evaluate: {missing} is missing"):
        check()


@pytest.mark.parametrize("text", ["", "[]", "NaN", '{"models": {"student": NaN}}', "\x00", "[" * 10_000])
def test_what_is_no_json_of_measures_is_refused(tmp_path: Path, check: Callable[[], Measures], text: str) -> None:
    write(tmp_path, text, arrays())
    with pytest.raises(UnderstudyError, match=r"^evaluate: measures\.json: "):
        check()


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", SINGLE, np.lib.format.magic(1, 0) + b"\xff\xff" + b" " * 65535]
)
def test_what_is_no_archive_of_arrays_is_refused(tmp_path: Path, check: Callable[[], Measures], content: bytes) -> None:
    (write(tmp_path, measures(), arrays()) / "per_example.npz").write_bytes(content)
    with pytest.raises(UnderstudyError, match=r"^evaluate: per_example\.npz: "):
        check()


@pytest.mark.parametrize(
    ("answers", "right"),
    [([0, 1, 2], [1, 1, 1]), ([0, 0.5, 1], [1, 0, 1]), ([0, -1, 1], [1, 0, 1]), ([0, 0, np.nan], [1, 1, np.nan])],
)
def test_answers_that_are_not_those_counted_as_right_are_refused(answers: list[float], right: list[float]) -> None:
    tokens, targets = np.ones(3), np.array([0.0, 1.0, 1.0])
    arrays = {"a.answer": np.array(answers), "a.correct": np.array(right), "a.nll": np.ones(3)}
    with pytest.raises(UnderstudyError, match="the answers of a contradict the answers counted as correct"):
        _check_correct(arrays, "a", tokens, targets)


def test_answers_that_are_those_counted_as_right_are_taken_over() -> None:
    arrays = {"a.answer": np.array([0, 0, np.nan]), "a.correct": np.array([1, 0, np.nan]), "a.nll": np.ones(3)}
    _check_correct(arrays, "a", np.ones(3), np.array([0.0, 1.0, 1.0]))
