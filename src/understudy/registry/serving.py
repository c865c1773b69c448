"""Prediction with a registered model. MLflow stores this file with the version, and runs it to load the version.

It imports nothing of understudy, does not use the network, and reads the model's description from understudy.json only.
The version includes the module of its task, which prepares inputs and reads outputs as in the measurement. The model's
files are hashed before any of them is read: their folder is named by the digest of their manifest.
"""

import hashlib
import importlib.util
import inspect
import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import ModelConfig
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    import torch

MANIFEST = "manifest.json"
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16"}


def check_files(folder: Path) -> None:
    """Verify a model's files against the digest that names their folder.

    Raises:
        MlflowException: a file was changed, added or removed.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file() or _sha256(manifest) != folder.name:
        raise _changed(folder, MANIFEST)
    expected = {file["path"]: file["sha256"] for file in json.loads(manifest.read_text())["files"]}
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    for name in sorted((names | expected.keys()) - {MANIFEST}):
        if name not in names or name not in expected or _sha256(folder / name) != expected[name]:
            raise _changed(folder, name)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _changed(folder: Path, name: str) -> MlflowException:
    return MlflowException(
        f"{folder / name}: is not the file that was registered as {folder.name[:12]}. Download the version again; if "
        "the message stays, its files in the registry were changed: register the model again"
    )


class Served(PythonModel):  # type: ignore[misc]  # mlflow is not type-checked
    """A model in the store's format, on the GPU if there is one."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the model from the version's files.

        Raises:
            MlflowException: they are not the registered files.
        """
        import torch

        self.folder = Path(context.artifacts["model"])
        check_files(self.folder)
        self.facts = json.loads((self.folder / "understudy.json").read_text())
        self.task = _module(context.artifacts["task"])
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.kind = getattr(torch, PRECISIONS[PRECISION])
        self.net = self._net().to(self.device).eval()
        for module in self.net.modules():  # as in the measurement: running means and positions stay fp32
            if getattr(module, "running_mean", None) is None:  # batch normalisation needs one dtype
                for parameter in module.parameters(recurse=False):
                    if parameter.is_floating_point():
                        parameter.data = parameter.data.to(self.kind)
        self.taken = frozenset(inspect.signature(self.net.forward).parameters)
        self.predictor = self.task.Predictor(self.facts, self.logits, self.folder, context.artifacts, STRIDE)

    def _net(self) -> "torch.nn.Module":
        import torch

        net: torch.nn.Module
        if self.facts["kind"] == "factory":
            from safetensors.torch import load_file

            module, _, function = self.facts["factory"].partition(":")
            net = getattr(importlib.import_module(module), function)(**self.facts["kwargs"])
            state: dict[str, torch.Tensor] = {}
            for file in self.folder.glob("model*.safetensors"):
                state |= load_file(file)
            missing, unexpected = net.load_state_dict(state, strict=False)
            weights = net.state_dict()
            filled = {weights[name].data_ptr() for name in state.keys() & weights.keys()}
            lacking = [name for name in missing if weights[name].data_ptr() not in filled]  # the others are tied
            if lacking or unexpected:
                raise ValueError(f"{self.folder}: weights are missing ({lacking[:3]}) or unknown ({unexpected[:3]})")
            return net
        import transformers

        auto = getattr(transformers, self.task.AUTO_MODEL)
        trusted = "code" in self.facts  # only if the recipe allowed it
        net = auto.from_pretrained(self.folder, local_files_only=True, dtype=torch.float32, trust_remote_code=trusted)
        return net

    def logits(self, inputs: "torch.Tensor", **keyword_inputs: "torch.Tensor") -> "torch.Tensor":
        """The network's logits, float32, on the CPU; arguments that it does not have are left out."""
        import torch

        # As in the measurement: by default, convolutions use TF32 (10 bits of mantissa) on a GPU.
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            inputs = inputs.to(self.device)
            named = {name: value.to(self.device) for name, value in keyword_inputs.items() if name in self.taken}
            output = self.net(inputs.to(self.kind) if inputs.is_floating_point() else inputs, **named)
        logits: torch.Tensor = getattr(output, "logits", output)
        return logits.float().cpu()

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """A row for each input.

        Args:
            context: MLflow's context, unused.
            model_input: columns, or an array (N, ...) if the task has no columns. MLflow warns of a union's type.
            params: the request's parameters.

        Raises:
            MlflowException: an input is not of the form that the signature gives.
        """
        try:
            return pd.DataFrame(self.predictor.predict(model_input, params or {}))
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error


def _module(path: str) -> ModuleType:
    """A Python file of the version."""
    spec = importlib.util.spec_from_file_location(f"understudy_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PRECISION: str = ModelConfig().get("precision")
STRIDE: int | None = ModelConfig().get("stride")  # MLflow provides the settings only while it runs this file
mlflow.models.set_model(Served())
