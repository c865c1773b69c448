"""Scores of examples through a version as its users load it: by MLflow's pyfunc, and by transformers alone.

    python -m understudy.registry.loaded FOLDER OUTPUT

This is a separate process without credentials (started by agent/serving.py): loading a version runs its model's code.
FOLDER contains the version's files, as downloaded from the registry, in `version`, and the examples in `examples.json`.
OUTPUT/scores.json gets the negative log-likelihoods in nats, by loading method and example, and the name of
AutoTokenizer's class if its tokens differ.
"""

import base64
import gc
import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

from understudy.agent.parent import die_with_parent
from understudy.store.files import read_json, write_json

EXAMPLES, SCORES, VERSION = "examples.json", "scores.json", "version"


def main() -> None:
    """Score the examples."""
    die_with_parent()
    folder, output = map(Path, sys.argv[1:])
    examples = [(base64.b64decode(content), label) for content, label in read_json(folder / EXAMPLES)]
    (described,) = (folder / VERSION / "artifacts").glob("*/understudy.json")
    facts = json.loads(described.read_text(encoding="utf-8"))
    is_text, kind = facts["task"] == "causal-lm", _kind(folder / VERSION)
    scores = {"pyfunc": (_texts if is_text else _images)(folder / VERSION, facts, examples)}
    gc.collect()  # memory may not fit a large model twice
    other = ""
    if facts["kind"] == "transformers" and is_text:
        texts = [content.decode() for content, _ in examples]
        tokenizer, other = _tokenizer(described.parent, facts, texts)
        scores["transformers"] = _transformers(described.parent, facts, tokenizer, texts, kind)
    elif facts["kind"] == "transformers":
        scores["transformers"] = _classified(described.parent, facts, examples, kind)
    write_json(output / SCORES, {"scores": scores, "tokenizer": other})


def _kind(version: Path) -> str:
    """The version's dtype, by its name in torch and transformers."""
    import yaml

    described = yaml.safe_load((version / "MLmodel").read_text(encoding="utf-8"))
    return {"fp32": "float32", "bf16": "bfloat16"}[described["flavors"]["python_function"]["config"]["precision"]]


def _texts(version: Path, facts: dict[str, Any], examples: list[tuple[bytes, str]]) -> list[float]:
    import mlflow
    import pandas as pd

    del facts
    texts = [content.decode() for content, _ in examples]
    rows = mlflow.pyfunc.load_model(str(version)).predict(pd.DataFrame({"text": texts}), params={"max_new_tokens": 0})
    return [
        math.log(2) * float(bits) * max(len(text.encode()), 1)
        for text, bits in zip(texts, rows["bits_per_byte"], strict=True)
    ]


def _images(version: Path, facts: dict[str, Any], examples: list[tuple[bytes, str]]) -> list[float]:
    import mlflow
    import pandas as pd

    images = pd.DataFrame({"image": [content for content, _ in examples]})
    rows = mlflow.pyfunc.load_model(str(version)).predict(images)
    own = [facts["labels"].index(label) for _, label in examples]
    found = zip(own, rows["probabilities"], strict=True)
    return [-math.log(max(probabilities[index], sys.float_info.min)) for index, probabilities in found]


def _classified(model: Path, facts: dict[str, Any], examples: list[tuple[bytes, str]], kind: str) -> list[float]:
    """Scores by the labels of config.json. The hub's format has no image processor for these models: images are
    decoded as in the pyfunc, and normalised as in docs/using/serving.md.
    """
    import numpy as np
    import torch
    from transformers import AutoModelForImageClassification

    net = AutoModelForImageClassification.from_pretrained(
        model, local_files_only=True, dtype=kind, trust_remote_code="code" in facts
    ).eval()
    image, pixels = facts["image"], _decoder(model.parent / "images.py").pixels
    shape = image["size"], image["channels"], image.get("background", "white")
    inputs = torch.from_numpy(np.stack([pixels(content, *shape) for content, _ in examples])) / 255
    mean, std = (torch.tensor(facts[key]).view(1, -1, 1, 1) for key in ("mean", "std"))
    with torch.inference_mode():
        logits = torch.cat([net(part).logits.float() for part in torch.split(((inputs - mean) / std).to(net.dtype), 8)])
    labels = torch.tensor([net.config.label2id[label] for _, label in examples])
    found: list[float] = torch.nn.functional.cross_entropy(logits, labels, reduction="none").tolist()
    return found


def _decoder(path: Path) -> Any:
    """The version's module that decodes images."""
    spec = importlib.util.spec_from_file_location("version_images", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _tokenizer(model: Path, facts: dict[str, Any], texts: list[str]) -> tuple[Any, str]:
    """AutoTokenizer's tokenizer; if its tokens differ, that of tokenizer.json, and the name of the former's class.

    For some architectures transformers replaces any tokenizer with its own.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    exact = PreTrainedTokenizerFast.from_pretrained(model, local_files_only=True)
    found = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code="code" in facts)
    if all(_ids(found, text) == _ids(exact, text) for text in texts):
        return found, ""
    return exact, type(found).__name__


def _ids(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    return found


def _transformers(model: Path, facts: dict[str, Any], tokenizer: Any, texts: list[str], kind: str) -> list[float]:
    """Scores as in docs/using/serving.md; windows share no context."""
    import torch
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(
        model, local_files_only=True, dtype=kind, trust_remote_code="code" in facts
    ).eval()
    end, length, nats = facts["eos_id"], facts["sequence_length"], list[float]()
    for text in texts:
        ids = _ids(tokenizer, text)
        inputs, targets = torch.tensor([facts.get("bos_id", end), *ids]), torch.tensor([*ids, end])
        total = 0.0
        for window, wanted in zip(torch.split(inputs, length), torch.split(targets, length), strict=True):
            with torch.inference_mode():
                logits = net(window[None]).logits[0, :, : facts["vocab_size"]].float()
            total += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
        nats.append(total)
    return nats


if __name__ == "__main__":
    main()
