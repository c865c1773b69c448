"""A model version's files: the store's object, the script that serves it, the user's code and the exact requirements.

Nothing here imports torch: the model is not run when it is registered.
"""

import ast
import json
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.errors import InputError

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
    code, libraries = user_code(facts["factory"]) if facts["kind"] == "factory" else ([], {"transformers"})
    libraries |= imported_libraries(facts.get("code", {}))
    libraries |= {"tokenizers"} if facts["task"] == "causal-lm" else set()
    mlflow.pyfunc.save_model(
        folder,
        mlflow_model=description,
        python_model=str(SCRIPT),
        model_config={"task": facts["task"]},
        artifacts={"model": str(model)},
        code_paths=[str(path) for path in code] or None,
        pip_requirements=sorted(pinned(name) for name in {*NEEDED, *libraries}),
        signature=signature(facts),
        input_example=_example(facts),
    )


def pinned(library: str) -> str:
    """A requirement on exactly the version that is installed here, without the mark of a local build (+cpu)."""
    return f"{library}=={metadata.version(library).partition('+')[0]}"


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


def user_code(factory: str) -> tuple[list[Path], set[str]]:
    """What a factory's module needs to be imported elsewhere.

    Read off the source, following imports, without importing anything.

    Returns:
        The files and package folders that are the user's own, and the distributions that are installed.

    Raises:
        InputError: the module cannot be found, or imports understudy, which is not there when the model is served.
    """
    first = factory.partition(":")[0].partition(".")[0]
    todo, seen, own, libraries = [first], set(sys.stdlib_module_names), list[Path](), set[str]()
    distributions = metadata.packages_distributions()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name == "understudy":
            raise InputError(f"{factory}: its code imports understudy, which is not there when the model is served")
        path = _location(name)
        if path is None and name == first:
            raise InputError(f"{factory}: there is no module {name} in this environment or in PYTHONPATH")
        if path is None:
            continue  # an import that was optional
        if _is_installed(path):
            libraries.update(distributions.get(name, [])[:1])
        else:
            own.append(path)
            todo.extend(_imported(path))
    return own, libraries


def imported_libraries(code: Mapping[str, str]) -> set[str]:
    """The installed distributions that a pretrained model's own files import."""
    distributions = metadata.packages_distributions()
    names = {name for text in code.values() for name in _imports(text)}
    return {distribution for name in names for distribution in distributions.get(name, [])[:1]}


def _location(module: str) -> Path | None:
    """A top-level module's file, or a package's folder."""
    spec = util.find_spec(module)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.has_location and spec.origin else None


def _is_installed(path: Path) -> bool:
    return any(path.is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


def _imported(path: Path) -> Iterator[str]:
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        yield from _imports(file.read_bytes())


def _imports(source: str | bytes) -> Iterator[str]:
    """Top-level names of the modules that a source imports absolutely."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
