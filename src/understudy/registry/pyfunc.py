"""A model version's files beside the model's own: its serving script, the user's code, the exact requirements.

This module does not import torch: registration does not run the model. Nor does it copy the model: MLflow describes an
empty folder as a placeholder, and model_upload.py sends the model's files.
"""

import base64
import io
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.errors import InputError
from understudy.models.facts import Description, read_description
from understudy.models.user_code import imported_libraries, user_code
from understudy.recipe import Evaluate
from understudy.registry.model_upload import place_of
from understudy.revision import version as installed

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import Model, ModelSignature

SCRIPT = Path(__file__).with_name("serving.py")
NEEDED = ("mlflow", "numpy", "pandas", "safetensors", "torch")
MAX_NEW_TOKENS = 32


def write(folder: Path, model: Path, description: "Model", evaluate: Evaluate) -> None:
    """Write the version's files except the model's own, which MLmodel names as if they were there.

    Args:
        folder: the target, created here.
        model: the store's object.
        description: MLflow's own description of the model, with the ids of its run and logged model.
        evaluate: the recipe's evaluation settings: the version is loaded in the same precision, and scores texts in
            the same windows, as in the measurement.

    Raises:
        InputError: the code of a factory model does not exist, or imports understudy.
    """
    facts = read_description(model)
    code, libraries = _code(facts)
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside, warnings.catch_warnings():
        stands_in = Path(aside, model.name)
        stands_in.mkdir()
        # These warnings are about MLflow's own modules, defaults and tables, not about this model.
        warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
        warnings.filterwarnings("ignore", "Operation with range is deprecated")
        import mlflow.pyfunc

        mlflow.pyfunc.save_model(
            folder,
            mlflow_model=description,
            python_model=str(SCRIPT),
            model_config={"task": facts["task"], "stride": evaluate.stride, "precision": evaluate.precision},
            artifacts={"model": str(stands_in), **_decoder(facts)},
            code_paths=[str(path) for path in code] or None,
            pip_requirements=sorted({pinned(name) for name in {*NEEDED, *libraries}}),
            signature=signature(facts),
            input_example=_example(facts),
        )
    _name_model(folder, model, description)


def _name_model(folder: Path, model: Path, description: "Model") -> None:
    """Replace the placeholder in MLmodel by the model itself."""
    from mlflow.models.model import MLMODEL_FILE_NAME
    from mlflow.pyfunc import FLAVOR_NAME

    (folder / place_of(model.name)).rmdir()
    description.flavors[FLAVOR_NAME]["artifacts"]["model"]["uri"] = str(model)
    description.model_size_bytes += sum(path.stat().st_size for path in model.rglob("*") if path.is_file())
    description.save(str(folder / MLMODEL_FILE_NAME))


def _decoder(facts: Description) -> dict[str, str]:
    """The module that decodes and resizes images, the same as in training."""
    if facts["task"] != "image-classification":
        return {}
    from understudy.data import images

    return {"images": str(images.__file__)}


def _code(facts: Description) -> tuple[tuple[Path, ...], set[str]]:
    """The user's files to include, and the imported libraries."""
    own = {"tokenizers"} if facts["task"] == "causal-lm" else {"PIL"}
    if facts["kind"] != "factory":
        return (), {"transformers", *own, *imported_libraries(facts.get("code", {}))}
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
    return found.paths, {*own, *found.libraries}


def pinned(library: str) -> str:
    """The exact requirement for an imported library, without a local version label (+cpu)."""
    name, _, version = installed(library).partition(" ")
    return f"{name}=={version.partition('+')[0]}"


def signature(facts: Description) -> "ModelSignature":
    """The version's inputs and outputs.

    Images: N encoded ones, or their pixels -> label, its probability, and the probabilities of all labels. MLflow has
    no type for either-or: an array of objects admits both, and serving.py validates the input.
    Text: a column `text` -> its greedy completion, and the model's bits per byte for the text itself.
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
    return ModelSignature(Schema([TensorSpec(np.dtype("O"), (-1,))]), Schema(outputs))


def _example(facts: Description) -> "pd.DataFrame":
    import pandas as pd

    if facts["task"] == "causal-lm":
        return pd.DataFrame({"text": ["Return the"]})
    return pd.DataFrame({"image": [_picture(facts["image"]["size"])]})


def _picture(size: int) -> str:
    """A grey ramp as a PNG in base64, as in a JSON request."""
    import numpy as np
    from PIL import Image

    ramp = np.linspace(0, 255, size).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(np.tile(ramp, (size, 1))).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()
