"""A registered language model's results for a text are those of the evaluation."""

import json
import math
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from mlflow.exceptions import MlflowException

from tests.registry.submitted import RECIPE, Pipeline, connect
from tests.unit.models.loading import loaded
from understudy.data import tokenizer as tokenizers
from understudy.data.measured import Documents
from understudy.evaluate.scoring import predicted
from understudy.models.build import build_model, tied_weights
from understudy.models.files import save_model

LENGTH = 8
TEXTS = ["a plain text about text", "x <|endoftext|> y", "<|endoftext|>", "long " * 12 + "<|endoftext|> tail", ""]
LLAMA = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA |= {
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "tie_word_embeddings": False,
}


def model(folder: Path, tokenizer: Any, padding: int, **about: Any) -> Path:
    """A random language model, with outputs beyond its tokenizer's vocabulary that it likes best of all."""
    torch.manual_seed(0)
    size = tokenizers.vocabulary_size(tokenizer)
    facts = {"task": "causal-lm", "vocab_size": size, "eos_id": 0, "sequence_length": LENGTH, **about}
    description: Any = {**facts, "kind": "transformers", "config": {**LLAMA, "vocab_size": size + padding}}
    net = build_model(description)
    state = {name: tensor for name, tensor in net.state_dict().items() if name not in tied_weights(net)}
    state["net.lm_head.weight"] = 5 * torch.randn_like(state["net.lm_head.weight"])
    state["net.lm_head.weight"][size:] *= 10
    folder.mkdir()
    (folder.parent / "tokenizer.json").write_text(tokenizer.to_str())
    save_model(folder, state, description, folder.parent / "tokenizer.json")
    return folder


def measured(folder: Path, tokenizer: Any, scratch: Path, stride: int, first: int = 0) -> list[float]:
    """Bits per byte of each text, as the evaluation has them."""
    token_ids = [[*encoded.ids, 0] for encoded in tokenizer.encode_batch(TEXTS, add_special_tokens=False)]
    np.save(scratch / "test.tokens.npy", np.concatenate(token_ids).astype(np.uint16))
    np.save(scratch / "test.offsets.npy", np.cumsum([0, *map(len, token_ids)]))
    np.save(scratch / "test.bytes.npy", np.array([len(text.encode()) for text in TEXTS]))
    nats = np.zeros(len(TEXTS))
    with torch.no_grad():
        for batch in Documents(scratch, LENGTH, first, stride).batches(4):
            results = predicted(loaded(folder), batch, torch.device("cpu"))
            np.add.at(nats, results.examples, results.nll)
    return [float(n) / math.log(2) / max(len(text.encode()), 1) for n, text in zip(nats, TEXTS, strict=True)]


@pytest.mark.parametrize(
    ("padding", "stride", "bos"), [(0, LENGTH, 0), (0, 3, 7), (84, LENGTH, 0), (84, 1, 0), (0, LENGTH, 7)]
)
def test_a_text_is_served_as_it_was_measured(tmp_path: Path, local: str, padding: int, stride: int, bos: int) -> None:
    tokenizer = tokenizers.train(iter(["a text about <|endoftext|> and more"] * 4), 300)
    saved = model(tmp_path / "model", tokenizer, padding, **({"bos_id": bos} if bos else {}))
    recipe = {**RECIPE, "name": f"lm-{padding}-{stride}-{bos}", "task": "causal-lm", "evaluate": {"stride": stride}}
    recipe["data"] = {"source": {"type": "python-docs"}, "text": {"sequence_length": LENGTH}}
    pipeline = Pipeline(tmp_path, local, recipe)
    pipeline.register(student=pipeline.adopt(saved))
    connect(local)
    served = mlflow.pyfunc.load_model(f"models:/{recipe['name']}@challenger")
    predictions = served.predict(pd.DataFrame({"text": TEXTS}), params={"max_new_tokens": 8})
    np.testing.assert_allclose(
        predictions["bits_per_byte"], measured(saved, tokenizer, tmp_path, stride, bos), rtol=1e-5
    )
    vocabulary = tokenizers.vocabulary_size(tokenizer)
    net = loaded(saved)
    with torch.no_grad():
        logits = net(torch.tensor([[bos]])).logits[0, -1]
    assert logits.shape == (vocabulary,)
    assert predictions["completion"][4].startswith(tokenizer.decode([int(logits.argmax())]))


@pytest.mark.parametrize("harm", ["flip", "add", "remove", "manifest gone", "manifest"])
def test_a_copy_that_was_changed_is_not_loaded(tmp_path: Path, local: str, harm: str) -> None:
    tokenizer = tokenizers.train(iter(["a text about <|endoftext|> and more"] * 4), 300)
    recipe = {**RECIPE, "name": f"harmed-{harm.replace(' ', '-')}"}
    pipeline = Pipeline(tmp_path, local, recipe)
    pipeline.register(student=pipeline.adopt(model(tmp_path / "model", tokenizer, 0)))
    connect(local)
    fetched = Path(mlflow.artifacts.download_artifacts(f"models:/{recipe['name']}@challenger", dst_path=str(tmp_path)))
    mlflow.pyfunc.load_model(str(fetched))
    (manifest,) = fetched.glob("artifacts/*/manifest.json")
    weights = manifest.with_name("model.safetensors")
    if harm == "flip":
        content = bytearray(weights.read_bytes())
        content[-5] ^= 64
        weights.write_bytes(content)
    elif harm == "add":
        (manifest.parent / "model-00002-of-00002.safetensors").write_bytes(b"")
    elif harm == "remove":
        manifest.with_name("tokenizer.json").unlink()
    elif harm == "manifest gone":
        manifest.unlink()
    else:
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "files": []}))
    with pytest.raises(MlflowException, match="is not the file that was registered"):
        mlflow.pyfunc.load_model(str(fetched))
