"""A champion registered by other means: any MLflow model whose pyfunc accepts the inputs of the task's models.

It has no digest, and no files that understudy could load. A separate process computes its predictions for the test
split. They become results per example, as for any model. Its cost is not measured.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.errors import UnderstudyError
from understudy.registry.client import mlflow_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

SECONDS = 1800
PASSED_ON = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "OMP_NUM_THREADS", "VIRTUAL_ENV")
"""The only environment variables of its process; none is a credential."""
KINDS = ("labels", "probabilities", "bits_per_byte")


@dataclass(frozen=True)
class Foreign:
    """A version with the alias champion that understudy did not make."""

    name: str
    version: str

    @property
    def words(self) -> str:
        """The champion's name in messages."""
        return f"the champion of {self.name}, version {self.version}"


def predictions_of(uri: str, champion: Foreign, inputs: Mapping[str, Any], scratch: Path) -> "tuple[str, NDArray[Any]]":
    """The champion's predictions: their kind, one of KINDS, and an array with one entry per input.

    Args:
        uri: the registry.
        champion: the model.
        inputs: the inputs: images and labels, or texts, in the format of foreign_answers.py.
        scratch: an existing folder for temporary files, which are removed.

    Raises:
        UnderstudyError: the model cannot be downloaded or loaded, or has other inputs or outputs.
    """
    import numpy as np

    with tempfile.TemporaryDirectory(dir=scratch) as temporary:
        folder = Path(temporary)
        (folder / "model").mkdir()
        model = mlflow_at(uri).download(f"models:/{champion.name}/{champion.version}", folder / "model")
        for name, value in inputs.items():
            if isinstance(value, np.ndarray):
                np.save(folder / f"{name}.npy", value)
            else:
                (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
        _run(champion, model, folder)
        count = len(inputs["texts"] if "texts" in inputs else inputs["images"])
        return _checked(champion, folder, count, len(inputs.get("labels", ())))


def _run(champion: Foreign, model: Path, folder: Path) -> None:
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {"HOME": str(folder), "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_TRACKING_URI": f"file:{folder}"}
    command = [sys.executable, "-m", "understudy.registry.foreign_answers", str(model), str(folder)]
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnderstudyError(f"{champion.words}, did not answer the test split in {SECONDS} s") from error
    misfit = folder / "misfit.txt"
    if misfit.exists():
        reason = misfit.read_text(encoding="utf-8")[:500]
        raise UnderstudyError(f"{champion.words}, cannot be compared with: {reason}")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UnderstudyError(
            f"{champion.words}, cannot be loaded and run here: {last[:300]}. Install its requirements, or give the "
            "alias to a version that understudy registered"
        )


def _checked(champion: Foreign, folder: Path, count: int, labels: int) -> "tuple[str, NDArray[Any]]":
    """Load and validate the predictions: the process that wrote them is untrusted."""
    import numpy as np

    kind = next((kind for kind in KINDS if (folder / f"{kind}.npy").is_file()), "")
    if kind:
        predictions = np.load(folder / f"{kind}.npy", allow_pickle=False)
        shape = (count, labels) if kind == "probabilities" else (count,)
        low, high = {"labels": (0, labels - 1), "probabilities": (0.0, 1.001)}.get(kind, (0.0, float("inf")))
        if (
            predictions.shape == shape
            and predictions.dtype.kind in "if"
            and np.all((predictions >= low) & (predictions <= high))
        ):
            return kind, predictions
    raise UnderstudyError(f"{champion.words}, did not answer each test example")
