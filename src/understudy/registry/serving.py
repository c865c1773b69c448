"""Prediction with a registered model. MLflow stores this file with the version, and runs it to load the version.

It imports nothing of understudy, does not use the network, and reads the model's description from understudy.json only.
The version includes the module that prepared the training images, and decodes images with it. The model's files are
hashed before any of them is read: their folder is named by the digest of their manifest.
"""

import base64
import hashlib
import importlib.util
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import ModelConfig
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    import torch

BATCH = 256  # examples
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
        f"{folder / name}: is not what was registered as {folder.name[:12]}. Download the version again; if "
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
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.kind = getattr(torch, PRECISIONS[PRECISION])
        self.net = self._net().to(self.device).eval()
        for module in self.net.modules():  # as in the measurement: running means and positions stay fp32
            if getattr(module, "running_mean", None) is None:  # batch normalisation needs one dtype
                for parameter in module.parameters(recurse=False):
                    if parameter.is_floating_point():
                        parameter.data = parameter.data.to(self.kind)

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
            own = net.state_dict()
            filled = {own[name].data_ptr() for name in state.keys() & own.keys()}
            lacking = [name for name in missing if own[name].data_ptr() not in filled]  # the others are tied
            if lacking or unexpected:
                raise ValueError(f"{self.folder}: weights are missing ({lacking[:3]}) or unknown ({unexpected[:3]})")
            return net
        import transformers

        text = self.facts["task"] == "causal-lm"
        auto = transformers.AutoModelForCausalLM if text else transformers.AutoModelForImageClassification
        trusted = "code" in self.facts  # only if the recipe allowed it
        net = auto.from_pretrained(self.folder, local_files_only=True, dtype=torch.float32, trust_remote_code=trusted)
        return net

    def logits(self, inputs: "torch.Tensor") -> "torch.Tensor":
        """The network's logits, float32, on the CPU."""
        import torch

        # As in the measurement: by default, convolutions use TF32 (10 bits of mantissa) on a GPU.
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            inputs = inputs.to(self.device)
            output = self.net(inputs.to(self.kind) if inputs.is_floating_point() else inputs)
        logits: torch.Tensor = getattr(output, "logits", output)
        return logits.float().cpu()


class ImageClassifier(Served):
    """An image classifier. Images are resized and normalised as in training."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the model and the image decoder."""
        super().load_context(context)
        spec = importlib.util.spec_from_file_location("understudy_images", context.artifacts["images"])
        assert spec is not None
        assert spec.loader is not None
        self.images = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.images)

    def predict(
        self, context: PythonModelContext, model_input: np.ndarray, params: dict[str, object] | None = None
    ) -> pd.DataFrame:
        """A row for each image: label, probability, probabilities.

        Args:
            context: MLflow's context, unused.
            model_input: N encoded images (bytes, or base64 in JSON), or their pixels, integers from 0 to 255,
                (N, C, S, S).
            params: unused.
        """
        import torch

        pixels = self._decoded(model_input) if model_input.ndim == 1 else self._checked(model_input)
        mean, std = (torch.tensor(self.facts[key]).view(1, -1, 1, 1) * 255 for key in ("mean", "std"))
        parts = torch.split(torch.from_numpy(pixels), BATCH) if len(pixels) else ()  # networks refuse an empty batch
        logits = [self.logits((part - mean) / std) for part in parts] or [torch.empty(0, len(self.facts["labels"]))]
        probabilities = torch.cat(logits).double().softmax(dim=-1).numpy()
        best = probabilities.argmax(axis=1)
        return pd.DataFrame(
            {
                "label": [self.facts["labels"][index] for index in best],
                "probability": probabilities.max(axis=1),
                "probabilities": probabilities.tolist(),
            }
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """The network's input shape: channels, height, width."""
        image = self.facts["image"]
        return image["channels"], image["size"], image["size"]

    def _decoded(self, given: np.ndarray) -> np.ndarray:
        channels, size, _ = self.shape
        background = self.facts["image"].get("background", "white")
        found = np.empty((len(given), *self.shape), np.uint8)
        for number, image in enumerate(given):
            try:
                found[number] = self.images.pixels(_content(image), size, channels, background)
            except ValueError as error:
                raise MlflowException.invalid_parameter_value(f"image {number}: {error}") from error
        return found

    def _checked(self, given: np.ndarray) -> np.ndarray:
        try:
            numbers = np.array(given.tolist()) if given.dtype == object else given  # JSON input has dtype object
        except ValueError as error:
            raise self._refusal("rows of different lengths") from error
        whole = np.issubdtype(numbers.dtype, np.integer)
        in_range = whole and numbers.min(initial=0) >= 0 and numbers.max(initial=0) <= 255
        if numbers.shape[1:] != self.shape or not in_range:
            raise self._refusal(f"{numbers.dtype} of shape {numbers.shape}")
        return numbers.astype(np.uint8)

    def _refusal(self, given: str) -> MlflowException:
        return MlflowException.invalid_parameter_value(
            "this model takes encoded images of any size, or pixels as whole numbers from 0 to 255 of shape "
            f"(N, {', '.join(map(str, self.shape))}); these are {given}"
        )


def _content(image: object) -> bytes:
    """An encoded image's bytes.

    Raises:
        ValueError: it is neither bytes nor base64.
    """
    if isinstance(image, bytes):
        return image
    if not isinstance(image, str):
        raise ValueError(f"it is of type {type(image).__name__}; an encoded image is bytes, or text in base64")
    try:
        return base64.b64decode("".join(image.split()), validate=True)  # the command base64 wraps its lines
    except ValueError as error:
        raise ValueError(f"it is text and not base64 ({error})") from error


class LanguageModel(Served):
    """A language model: completions of texts, and their bits per byte."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the model and its tokenizer."""
        from tokenizers import Tokenizer

        super().load_context(context)
        self.tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        # As in data/tokenizer.py. The file lacks these settings, or has its maker's. If a special token's name in a
        # text were encoded as that token, a prompt could end the text or open another speaker's turn.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True
        self.end, self.length = self.facts["eos_id"], self.facts["sequence_length"]
        self.first = self.facts.get("bos_id", self.end)
        self.stride = STRIDE or self.length

    def logits(self, inputs: "torch.Tensor") -> "torch.Tensor":
        """The logits of the tokenizer's tokens; a network may have more outputs than that."""
        return super().logits(inputs)[..., : self.facts["vocab_size"]]

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, int] | None = None
    ) -> pd.DataFrame:
        """A row for each text: its greedy completion, and the model's bits per byte for the text."""
        rows = []
        for text in model_input["text"]:
            tokens = self.tokenizer.encode(text, add_special_tokens=False).ids
            completion = self._completion(tokens, (params or {})["max_new_tokens"])
            rows.append({"completion": completion, "bits_per_byte": self._bits(tokens) / max(len(text.encode()), 1)})
        return pd.DataFrame(rows, columns=["completion", "bits_per_byte"])

    def _completion(self, tokens: list[int], count: int) -> str:
        import torch

        sequence = [self.first, *tokens]
        for _ in range(count):
            following = int(self.logits(torch.tensor([sequence[-self.length :]]))[0, -1].argmax())
            if following == self.end:
                break
            sequence.append(following)
        return str(self.tokenizer.decode(sequence[1 + len(tokens) :]))

    def _bits(self, tokens: list[int]) -> float:
        """The bits of the text and its end token, by windows, counted as in understudy's evaluation."""
        import torch

        inputs, targets = torch.tensor([self.first, *tokens]), torch.tensor([*tokens, self.end])
        nats, counted = 0.0, 0
        while counted < len(targets):
            end = min(counted + (self.stride if counted else self.length), len(targets))
            start = counted if self.stride == self.length else max(end - self.length, 0)
            logits = self.logits(inputs[None, start:end])[0, counted - start :]
            nats += float(torch.nn.functional.cross_entropy(logits, targets[counted:end], reduction="sum"))
            counted = end
        return nats / math.log(2)


PRECISION: str = ModelConfig().get("precision")
STRIDE: int | None = ModelConfig().get("stride")  # MLflow provides the settings only while it runs this file
TASKS = {"image-classification": ImageClassifier, "causal-lm": LanguageModel}
mlflow.models.set_model(TASKS[ModelConfig().get("task")]())
