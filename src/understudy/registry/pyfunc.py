"""A model version's files beside the model's own: its serving script, the user's code, the exact requirements.

This module does not import torch: registration does not run the model. Nor does it copy the model: MLflow describes an
empty folder as a placeholder, and model_upload.py sends the model's files.
"""

import importlib
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.errors import InputError
from understudy.models.facts import Description, read_description
from understudy.models.user_code import imported_libraries, user_code
from understudy.recipe import Evaluate
from understudy.recipe.tasks import TASKS
from understudy.registry.model_upload import model_path
from understudy.registry.task import served_task
from understudy.revision import version as installed

if TYPE_CHECKING:
    from mlflow.models import Model, ModelSignature
    from mlflow.types.schema import ParamSpec, Schema

SCRIPT = Path(__file__).with_name("serving.py")
NEEDED = ("mlflow", "numpy", "pandas", "safetensors", "torch")


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
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary, warnings.catch_warnings():
        placeholder = Path(temporary, model.name)
        placeholder.mkdir()
        # These warnings are about MLflow's own modules, defaults and tables, not about this model.
        warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
        warnings.filterwarnings("ignore", "Operation with range is deprecated")
        import mlflow.pyfunc
        import pandas as pd

        mlflow.pyfunc.save_model(
            folder,
            mlflow_model=description,
            python_model=str(SCRIPT),
            model_config={"stride": evaluate.stride, "precision": evaluate.precision},
            artifacts={"model": str(placeholder), **_files(facts)},
            code_paths=[str(path) for path in code] or None,
            pip_requirements=sorted({pinned(name) for name in {*NEEDED, *libraries}}),
            signature=signature(facts),
            input_example=pd.DataFrame(served_task(facts["task"]).example(facts)),
        )
    _name_model(folder, model, description)


def _name_model(folder: Path, model: Path, description: "Model") -> None:
    """Replace the placeholder in MLmodel by the model itself."""
    from mlflow.models.model import MLMODEL_FILE_NAME
    from mlflow.pyfunc import FLAVOR_NAME

    (folder / model_path(model.name)).rmdir()
    description.flavors[FLAVOR_NAME]["artifacts"]["model"]["uri"] = str(model)
    description.model_size_bytes += sum(path.stat().st_size for path in model.rglob("*") if path.is_file())
    description.save(str(folder / MLMODEL_FILE_NAME))


def _files(facts: Description) -> dict[str, str]:
    """The module of the task, and those that it needs, the same as in training."""
    modules = {"task": TASKS[facts["task"]], **served_task(facts["task"]).FILES}
    return {name: str(importlib.import_module(module).__file__) for name, module in modules.items()}


def _code(facts: Description) -> tuple[tuple[Path, ...], set[str]]:
    """The user's files to include, and the imported libraries."""
    task_libraries = served_task(facts["task"]).LIBRARIES
    if facts["kind"] != "factory":
        return (), {"transformers", *task_libraries, *imported_libraries(facts.get("code", {}))}
    try:
        code = user_code(facts["factory"].partition(":")[0])
    except ModuleNotFoundError as error:
        raise InputError(
            f"{facts['factory']}: there is no module {error} in this environment or in PYTHONPATH"
        ) from error
    if code.imports_understudy:
        raise InputError(
            f"{facts['factory']}: its code imports understudy, which is not there when the model is served"
        )
    return code.paths, {*task_libraries, *code.libraries}


def pinned(library: str) -> str:
    """The exact requirement for an imported library, without a local version label (+cpu)."""
    name, _, version = installed(library).partition(" ")
    return f"{name}=={version.partition('+')[0]}"


def signature(facts: Description) -> "ModelSignature":
    """The version's inputs and outputs.

    MLflow has no type for inputs of several forms, such as encoded images or their pixels: an array of objects admits
    all of them, and the Predictor validates them.
    """
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ParamSchema, Schema, TensorSpec

    task = served_task(facts["task"])
    named = task.inputs(facts)
    inputs = columns(named) if named else Schema([TensorSpec(np.dtype("O"), (-1,))])
    params = [_param(name, default) for name, default in task.PARAMS.items()]
    return ModelSignature(inputs, columns(task.OUTPUTS), ParamSchema(params) if params else None)


def _param(name: str, default: int | float | list[str]) -> "ParamSpec":  # an int is another type
    from mlflow.types.schema import DataType, ParamSpec

    if isinstance(default, list):
        return ParamSpec(name, DataType.string, default, shape=(-1,))
    return ParamSpec(name, DataType.long if isinstance(default, int) else DataType.double, default)


def columns(types: Mapping[str, str]) -> "Schema":
    """Columns with the types that a task gives them."""
    from mlflow.types.schema import Array, ColSpec, DataType, Object, Property, Schema

    string, double = DataType.string, DataType.double
    mlflow_types = {"string": string, "double": double, "strings": Array(string), "doubles": Array(double)}
    mlflow_types["long"] = DataType.long
    mlflow_types["messages"] = Array(Object([Property("role", string), Property("content", string)]))
    return Schema([ColSpec(mlflow_types[kind], name) for name, kind in types.items()])
