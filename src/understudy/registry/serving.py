"""How a registered model answers. MLflow stores this file with the version and runs it wherever that is loaded.

It imports nothing of understudy, reads nothing from the network, and knows the model by its understudy.json alone.
"""

import importlib
import json
import math
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import ModelConfig
from mlflow.pyfunc import PythonModel, PythonModelContext

BATCH = 256  # examples


class Served(PythonModel):  # type: ignore[misc]  # mlflow is not type-checked
    """A model of the store's format: its network, on the GPU when there is one."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the model from the version's files."""
        import torch

        self.folder = Path(context.artifacts["model"])
        self.facts = json.loads((self.folder / "understudy.json").read_text())
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.net = self._net().to(self.device).eval()

    def _net(self) -> Any:
        if self.facts["kind"] == "factory":
            from safetensors.torch import load_model

            module, _, function = self.facts["factory"].partition(":")
            net = getattr(importlib.import_module(module), function)(**self.facts["kwargs"])
            load_model(net, self.folder / "model.safetensors")
            return net
        import torch
        import transformers

        text = self.facts["task"] == "causal-lm"
        auto = transformers.AutoModelForCausalLM if text else transformers.AutoModelForImageClassification
        trusted = "code" in self.facts  # only where the recipe said so
        return auto.from_pretrained(self.folder, local_files_only=True, dtype=torch.float32, trust_remote_code=trusted)

    def logits(self, inputs: Any) -> Any:
        """The network's logits, float32, on the CPU."""
        import torch

        with torch.inference_mode():
            output = self.net(inputs.to(self.device))
        return getattr(output, "logits", output).float().cpu()


class ImageClassifier(Served):
    """Pixels as they are, 0 to 255, to labels; they are normalised here as they were in training."""

    def predict(
        self, context: PythonModelContext, model_input: np.ndarray, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Images, uint8 (N, C, S, S), to a row each: label, probability, probabilities."""
        import torch

        mean, std = (torch.tensor(self.facts[key]).view(1, -1, 1, 1) * 255 for key in ("mean", "std"))
        parts = torch.split(torch.from_numpy(np.array(model_input)), BATCH)
        logits = torch.cat([self.logits((part - mean) / std) for part in parts])
        probabilities = logits.double().softmax(dim=-1).numpy()
        best = probabilities.argmax(axis=1)
        return pd.DataFrame(
            {
                "label": [self.facts["labels"][index] for index in best],
                "probability": probabilities.max(axis=1),
                "probabilities": probabilities.tolist(),
            }
        )


class LanguageModel(Served):
    """Text to what follows it, and to how well the model predicts it."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the model and its tokenizer."""
        from tokenizers import Tokenizer

        super().load_context(context)
        self.tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """A row for each text: its greedy completion, and the bits per byte that the model needs for the text."""
        rows = []
        for text in model_input["text"]:
            tokens = self.tokenizer.encode(text, add_special_tokens=False).ids
            completion = self._completion(tokens, (params or {})["max_new_tokens"])
            rows.append({"completion": completion, "bits_per_byte": self._bits(tokens) / max(len(text.encode()), 1)})
        return pd.DataFrame(rows, columns=["completion", "bits_per_byte"])

    def _completion(self, tokens: list[int], count: int) -> str:
        import torch

        end, length = self.facts["eos_id"], self.facts["sequence_length"]
        sequence = [end, *tokens]
        for _ in range(count):
            following = int(self.logits(torch.tensor([sequence[-length:]]))[0, -1].argmax())
            if following == end:
                break
            sequence.append(following)
        return str(self.tokenizer.decode(sequence[1 + len(tokens) :]))

    def _bits(self, tokens: list[int]) -> float:
        """For the text and its end, window by window, as understudy's evaluation counts them."""
        import torch

        end, length = self.facts["eos_id"], self.facts["sequence_length"]
        inputs, targets = torch.tensor([end, *tokens]), torch.tensor([*tokens, end])
        nats = 0.0
        for window, wanted in zip(torch.split(inputs, length), torch.split(targets, length), strict=True):
            nats += float(torch.nn.functional.cross_entropy(self.logits(window[None])[0], wanted, reduction="sum"))
        return nats / math.log(2)


TASKS = {"image-classification": ImageClassifier, "causal-lm": LanguageModel}
mlflow.models.set_model(TASKS[ModelConfig().get("task")]())
