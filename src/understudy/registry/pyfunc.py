"""A model version's files: the store's object, the script that serves it, the user's code and the exact requirements.

Nothing here imports torch: the model is not run when it is registered.
"""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.errors import InputError
from understudy.models.user_code import imported_libraries, user_code
from understudy.revision import version as installed

if TYPE_CHECKING:
    from mlflow.models import Model, ModelSignature

SCRIPT = Path(__file__).with_name("serving.py")
NEEDED = ("mlflow", "numpy", "pandas", "safetensors", "torch")
MAX_NEW_TOKENS = 32


def write(folder: Path, model: Path, description: "Model") -> None:
    """Write the version's files.

    Args:
        folder: where to; made here.
        model: the store's object, its manifest included, so that the store can take it back from the registry.
        description: MLflow's own description of the model, with the ids of its run and logged model.

    Raises:
        InputError: the code of a factory model cannot be found, or needs understudy.
    """
    with warnings.catch_warnings():
        # MLflow's own modules and defaults, not this model's.
        warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
        import mlflow.pyfunc

    facts = json.loads((model / "understudy.json").read_text())
    code, libraries = _code(facts)
    mlflow.pyfunc.save_model(
        folder,
        mlflow_model=description,
        python_model=str(SCRIPT),
        model_config={"task": facts["task"]},
        artifacts={"model": str(model)},
        code_paths=[str(path) for path in code] or None,
        pip_requirements=sorted({pinned(name) for name in {*NEEDED, *libraries}}),
        signature=signature(facts),
        input_example=_example(facts),
    )


def _code(facts: dict[str, Any]) -> tuple[tuple[Path, ...], set[str]]:
    """The user's own files that go along, and the libraries that are imported."""
    text = {"tokenizers"} if facts["task"] == "causal-lm" else set()
    if facts["kind"] != "factory":
        return (), {"transformers", *text, *imported_libraries(facts.get("code", {}))}
    try:
        found = user_code(facts["factory"].partition(":")[0])
    except ModuleNotFoundError as error:
        raise InputError(
            f"{facts['factory']}: there is no module {error} in this environment or in PYTHONPATH"
        ) from error
    if found.imports_understudy:
        raise InputError(
            f"{facts['factory']}: its code imports understudy, which is not there when the model is served"
        )
    return found.paths, {*text, *found.libraries}


def pinned(library: str) -> str:
    """A requirement on exactly the version of an imported library, without the mark of a local build (+cpu)."""
    name, _, version = installed(library).partition(" ")
    return f"{name}=={version.partition('+')[0]}"


def signature(facts: dict[str, Any]) -> "ModelSignature":
    """What the version takes and returns.

    Images: uint8 (N, channels, size, size) -> label, its probability, and the probabilities of all labels.
    Text: a column `text` -> its greedy completion, and the bits per byte that the model needs for the text itself.
    """
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec

    if facts["task"] == "causal-lm":
        return ModelSignature(
            Schema([ColSpec(DataType.string, "text")]),
            Schema([ColSpec(DataType.string, "completion"), ColSpec(DataType.double, "bits_per_byte")]),
            ParamSchema([ParamSpec("max_new_tokens", DataType.long, MAX_NEW_TOKENS)]),
        )
    outputs = [
        ColSpec(DataType.string, "label"),
        ColSpec(DataType.double, "probability"),
        ColSpec(Array(DataType.double), "probabilities"),
    ]
    return ModelSignature(Schema([TensorSpec(np.dtype("uint8"), (-1, *_shape(facts)))]), Schema(outputs))


def _shape(facts: dict[str, Any]) -> tuple[int, int, int]:
    image = facts["image"]
    return image["channels"], image["size"], image["size"]


def _example(facts: dict[str, Any]) -> Any:
    import numpy as np
    import pandas as pd

    if facts["task"] == "causal-lm":
        return pd.DataFrame({"text": ["Return the"]})
    channels, height, width = _shape(facts)
    ramp = np.linspace(0, 255, width).astype(np.uint8)
    return np.broadcast_to(ramp, (1, channels, height, width)).copy()
