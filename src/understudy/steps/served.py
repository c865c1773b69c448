"""What is served is what was measured: a version's proof at its registration.

A process of its own, without this one's credentials, loads the version as its users do and scores some test examples;
their scores are compared with those that the gate saw.
"""

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.agent.parent import environment
from understudy.data.records import at
from understudy.errors import UnderstudyError
from understudy.models.facts import read_description
from understudy.registry.evidence import NOTE, Figures
from understudy.steps.step import Work
from understudy.store.files import read_json, write_json

if TYPE_CHECKING:
    from understudy.evaluate.served import Comparison

LOADER = "understudy.registry.loaded"
HANDED_ON = {"PATH", "HOME", "TMPDIR", "LANG", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HOME", "OMP_NUM_THREADS"}
HANDED_ON |= {"CUDA_VISIBLE_DEVICES", "UNDERSTUDY_PARENT"}
"""Of the environment; the rest may hold credentials, and the version's code is not to see them."""


def prove(work: Work, version: Path) -> Figures:
    """The figures of the comparison, by way of loading.

    Args:
        work: the register step's.
        version: the version's files, as the registry gives them out.

    Raises:
        UnderstudyError: the version cannot be loaded, or scores an example otherwise than the evaluation did.
    """
    import numpy as np

    from understudy.evaluate.served import Comparison, chosen

    with np.load(work.input("measures") / "per_example.npz", allow_pickle=False) as arrays:
        predictions, nll = arrays["weights.tokens"], arrays[f"{work.recipe.candidate}.nll"]
    places = chosen(predictions.astype(np.int64))
    work.report_waiting(f"scoring {len(places)} test examples through the version")
    contents = at(work.input("records"), "test", places)
    scores, note = _scores(work, version, [[base64.b64encode(one.content).decode(), one.label] for one in contents])
    if not _windows_are_apart(work):  # how transformers alone is asked
        scores.pop("transformers", None)
    figures: dict[str, Mapping[str, float] | str] = {}
    for way, served in scores.items():
        found = Comparison(
            places, nll[places], np.array(served, dtype=np.float64), predictions[places], work.recipe.evaluate.precision
        )
        if found.served.shape != found.measured.shape or not found.holds:
            raise _refusal(way, found)
        figures[way] = found.figures()
    return {**figures, NOTE: note} if note else figures


def _windows_are_apart(work: Work) -> bool:
    facts = read_description(work.input(work.recipe.candidate))
    stride = work.recipe.evaluate.stride
    return facts["task"] != "causal-lm" or stride in (None, facts["sequence_length"])


def _scores(work: Work, version: Path, examples: list[list[str | None]]) -> tuple[dict[str, list[float]], str]:
    log = work.run.folder / "logs" / "served.log"
    with tempfile.TemporaryDirectory(dir=version.parent.parent) as name:
        folder = Path(name)
        version.rename(folder / "version")
        write_json(folder / "examples.json", examples)
        with log.open("ab") as output:
            done = subprocess.run(
                [sys.executable, "-m", LOADER, name], env=_environment(), stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, check=False,
            )  # fmt: skip
        (folder / "version").rename(version)
        found = read_json(folder / "scores.json")
    if done.returncode or not isinstance(found, dict):
        words = log.read_text(errors="replace").strip().splitlines()
        raise UnderstudyError(
            f"register: the version cannot be loaded as its users load it ({words[-1] if words else 'no output'}), so "
            f"it is not registered; all of the output is in {os.path.relpath(log)}"
        )
    return found["scores"], found["note"]


def _environment() -> Mapping[str, str]:
    kept = {name: value for name, value in environment().items() if name in HANDED_ON}
    return {**kept, "HF_HUB_OFFLINE": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "TOKENIZERS_PARALLELISM": "false"}


def _refusal(way: str, found: "Comparison") -> UnderstudyError:
    if found.served.shape != found.measured.shape:
        return UnderstudyError(
            f"register: the version, loaded by {way}, gave {found.served.size} scores for {len(found.examples)} "
            "examples, so it is not registered"
        )
    worst = found.worst
    served, measured = found.served[worst], found.measured[worst]
    return UnderstudyError(
        f"register: what is served is not what was measured: loaded by {way}, the version needs {served:.6g} nats for "
        f"example {found.examples[worst]} of the test split, and the evaluation {measured:.6g}; rounding explains "
        f"{found.allowed[worst]:.2g}. It is not registered. Look whether the model's code does the same when it is "
        "loaded alone"
    )
