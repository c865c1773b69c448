"""A version loaded as its users load it, and asked about some examples: by MLflow's pyfunc, and by transformers alone.

    python -m understudy.registry.loaded FOLDER

A process of its own, without credentials: loading a version runs the code of its model. FOLDER has the version's files,
as downloaded from the registry, in `version`, and the examples in `examples.json`. What comes out is `scores.json`: the
negative log-likelihoods in nats, by way of loading and example.
"""

import base64
import gc
import json
import math
import sys
from pathlib import Path
from typing import Any

from understudy.store.files import read_json, write_json

EXAMPLES, SCORES, VERSION = "examples.json", "scores.json", "version"


def main() -> None:
    """Score the examples."""
    folder = Path(sys.argv[1])
    examples = [(base64.b64decode(content), label) for content, label in read_json(folder / EXAMPLES)]
    (described,) = (folder / VERSION / "artifacts").glob("*/understudy.json")
    facts = json.loads(described.read_text(encoding="utf-8"))
    is_text = facts["task"] == "causal-lm"
    scores = {"pyfunc": (_texts if is_text else _images)(folder / VERSION, facts, examples)}
    gc.collect()  # a large model fits once
    if is_text and facts["kind"] == "transformers":
        scores["transformers"] = _transformers(described.parent, facts, [content.decode() for content, _ in examples])
    write_json(folder / SCORES, scores)


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


def _transformers(model: Path, facts: dict[str, Any], texts: list[str]) -> list[float]:
    """As docs/serving.md says to do it; each window is predicted from itself alone."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    net = AutoModelForCausalLM.from_pretrained(
        model, local_files_only=True, dtype=torch.float32, trust_remote_code="code" in facts
    ).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_file(str(model / "tokenizer.json")))
    end, length, nats = facts["eos_id"], facts["sequence_length"], list[float]()
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
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
