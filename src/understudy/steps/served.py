"""The check at registration that a model version gives the scores that were measured.

The version is loaded as users load it and scores some test examples. Their scores are compared with those that the
gate used. This runs in a separate process without credentials; in a cluster, in a job's pod.
"""

import base64
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from understudy.agent.serving import EXAMPLES, SCORES, VERSION, check, ended, started
from understudy.data.records import Content, at
from understudy.errors import UnderstudyError
from understudy.launch.platform import platform
from understudy.models.facts import read_description
from understudy.recipe import Recipe, degrees
from understudy.registry.evidence import NOTE, Figures
from understudy.registry.version_files import MARK
from understudy.steps.delivery import deliver
from understudy.steps.job import run_job
from understudy.steps.job_spec import serving_spec
from understudy.steps.step import Work
from understudy.store.files import hash_file, write_json

if TYPE_CHECKING:
    from understudy.evaluate.served import Comparison

LARGEST = 2**20  # maximum bytes of scores.json
CLASS = re.compile(r"\w{0,100}")
"""The name of a class, which MLflow's pages show."""
ITS_OWN = {"MLmodel", MARK}
"""Files of a version that differ at every upload of the same student."""
Encoded = tuple[str, str | None, Mapping[str, str]]
"""A test record in JSON: its content, its label and its further fields, in base64."""
Scores = tuple[Mapping[str, list[float]], str]
"""The scores by loader, and the class of AutoTokenizer's tokenizer, if its tokens differ."""


def prove(work: Work, version: Path) -> Figures:
    """The figures of the comparison, by loader: pyfunc or transformers.

    Args:
        work: that of the register step.
        version: the version's files, as downloaded from the registry.

    Raises:
        UnderstudyError: the version cannot be loaded, or scores an example differently from the evaluation.
    """
    import numpy as np

    from understudy.evaluate.served import Comparison, chosen

    with np.load(work.input("measures") / "per_example.npz", allow_pickle=False) as arrays:
        predictions, nll = arrays["weights.tokens"], arrays[f"{work.recipe.candidate}.nll"]
    indices = chosen(predictions.astype(np.int64))
    work.report_waiting(f"scoring {len(indices)} test examples through the version")
    examples = [_encoded(record) for record in at(work.input("records"), "test", indices)]
    scores, tokenizer = (_in_job if platform().remote else _in_process)(work, version, examples)
    if not _windows_are_disjoint(work):  # transformers alone sees such windows only
        scores = {loader: served for loader, served in scores.items() if loader != "transformers"}
    figures: dict[str, Mapping[str, float] | str] = {}
    for loader, served in scores.items():
        comparison = Comparison(
            indices,
            nll[indices],
            np.array(served, dtype=np.float64),
            predictions[indices],
            work.recipe.evaluate.precision,
        )
        if comparison.served.shape != comparison.measured.shape or not comparison.is_within_tolerance:
            raise _refusal(loader, comparison)
        figures[loader] = comparison.figures()
    if tokenizer and "transformers" in figures:
        figures[NOTE] = _tokenizer_note(work, tokenizer)
    return figures


def _encoded(record: Content) -> Encoded:
    fields = {name: base64.b64encode(value).decode() for name, value in record.others.items()}
    return base64.b64encode(record.content).decode(), record.label, fields


def can_be_proved(recipe: Recipe) -> bool:
    """Whether one process should have memory for the model; in a cluster it may have been measured in shards."""
    if not platform().remote:
        return True
    resources = recipe.resources.evaluation
    return not degrees(recipe.evaluate.strategy, resources.nodes, resources.processes, "resources.evaluate").shards


def _tokenizer_note(work: Work, tokenizer: str) -> str:
    candidate = work.recipe.candidate
    return (
        f"AutoTokenizer's tokens differ from those that the {candidate} was trained on: for models of its type "
        f"transformers uses {tokenizer} instead of tokenizer.json; load the tokenizer with PreTrainedTokenizerFast"
    )


def _windows_are_disjoint(work: Work) -> bool:
    facts = read_description(work.input(work.recipe.candidate))
    stride = work.recipe.evaluate.stride
    return "sequence_length" not in facts or stride in (None, facts["sequence_length"])


def _in_process(work: Work, version: Path, examples: list[Encoded]) -> Scores:
    """The scores, computed by a process of this machine."""
    log = work.run.folder / "logs" / "served.log"
    with tempfile.TemporaryDirectory(dir=version.parent.parent) as name:
        folder = Path(name)
        version.rename(folder / VERSION)
        write_json(folder / EXAMPLES, examples)
        check(ended(started(folder, folder, log), lambda: work.run.stop_requested), log)
        return _read(folder / SCORES)


def _in_job(work: Work, version: Path, examples: list[Encoded]) -> Scores:
    """The scores, computed by a job without credentials on the files that this process downloaded from the registry."""
    folder = work.lease.folder.parent / "served"  # beside the job's folder: ranks cannot write there
    work.lease.check()
    if not (folder / VERSION).is_dir() or not _have_same_files(folder / VERSION, version):
        # In a resumed step the job may be running or finished: its scores stay valid for the same files.
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.with_name("job"), ignore_errors=True)  # if a job outlives its launcher
        folder.mkdir()
        write_json(folder / EXAMPLES, examples)
        version.rename(folder / VERSION)
    spec, output = serving_spec(work, folder), work.lease.staging()
    deliver(run_job(work, spec), output, {SCORES}.__contains__)
    shutil.rmtree(folder)
    return _read(output / SCORES)


def _have_same_files(first: Path, second: Path) -> bool:
    """Whether two copies of a version have the same files."""
    files = [
        {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file() and path.name not in ITS_OWN}
        for folder in (first, second)
    ]
    return files[0].keys() == files[1].keys() and all(
        hash_file(path) == hash_file(files[1][name]) for name, path in files[0].items()
    )


def _read(path: Path) -> Scores:
    """Read and validate the scores: the process that wrote them ran the model's code.

    Raises:
        UnderstudyError: the file has other contents.
    """
    try:
        content = TypeAdapter(dict[str, dict[str, list[float]] | str]).validate_json(_bytes(path), strict=True)
    except (OSError, ValidationError) as error:
        raise _no_scores("has no scores") from error
    scores, tokenizer = content.get("scores"), content.get("tokenizer")
    if not isinstance(scores, dict) or not isinstance(tokenizer, str) or not CLASS.fullmatch(tokenizer):
        raise _no_scores("has no scores")
    if "pyfunc" not in scores or scores.keys() - {"pyfunc", "transformers"}:
        raise _no_scores("has unexpected loaders")
    return scores, tokenizer


def _bytes(path: Path) -> bytes:
    """A regular file's bytes; a link is not followed, and a pipe does not block."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise _no_scores("has no scores")
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise _no_scores(f"has more than {LARGEST:,} bytes")
    return content


def _no_scores(why: str) -> UnderstudyError:
    return UnderstudyError(
        f"register: {SCORES} {why}. It was discarded, and the version is not registered; check the model's own "
        "code, and run again"
    )


def _refusal(loader: str, comparison: "Comparison") -> UnderstudyError:
    if comparison.served.shape != comparison.measured.shape:
        return UnderstudyError(
            f"register: the version, loaded by {loader}, gave {comparison.served.size} scores for "
            f"{len(comparison.examples)} examples, so it is not registered"
        )
    worst = comparison.worst
    served, measured = comparison.served[worst], comparison.measured[worst]
    return UnderstudyError(
        f"register: the served model differs from the measured one: loaded by {loader}, the version needs "
        f"{served:.6g} nats for example {comparison.examples[worst]} of the test split, and the evaluation "
        f"{measured:.6g}; rounding explains {comparison.allowed[worst]:.2g}. The version is not registered. Check that "
        "the model's code computes the same when it is loaded alone"
    )
