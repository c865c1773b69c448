"""A registered version where nothing but mlflow and its own requirements is installed, and no network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.registry.saved_models import SMALL, VIT, describe_images, save
from tests.registry.submitted import RECIPE, Pipeline, connect
from tests.unit.models.loading import loaded
from understudy.data.images import pixels
from understudy.models.files import save_model

NET = """
import json
import torch
from layers.head import head


def net(width: int, num_labels: int) -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, width), head(width, num_labels))
"""
HEAD = "import torch\n\n\ndef head(width, labels):\n    return torch.nn.Linear(width, labels)\n"

CODE = {
    "configuration_own.py": """
from transformers import PretrainedConfig

class OwnConfig(PretrainedConfig):
    model_type = "own-net"
""",
    "modeling_own.py": """
import pydantic
import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutput

from .configuration_own import OwnConfig

class OwnNet(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(64, config.num_labels)
        self.post_init()

    def forward(self, pixel_values):
        return ImageClassifierOutput(logits=self.layer(pixel_values.flatten(1)))
""",
}

ELSEWHERE = """
import importlib.util, json, sys
import mlflow, numpy as np, pandas as pd

assert importlib.util.find_spec("understudy") is None
mlflow.set_tracking_uri(sys.argv[1])
images = np.load(sys.argv[2])
photos = pd.DataFrame({"image": [open(path, "rb").read() for path in sys.argv[3:]]})
found = {}
for name in ("vit", "factory", "own"):
    model = mlflow.pyfunc.load_model(f"models:/{name}@challenger")
    found[name] = model.predict(images).to_dict("list")
    found[f"{name} of photos"] = model.predict(photos).to_dict("list")
    assert len(model.predict(model.input_example)) == 1

from pathlib import Path
import torch, transformers
(config,) = Path(mlflow.artifacts.download_artifacts("models:/vit@challenger")).glob("artifacts/*/config.json")
net = transformers.AutoModelForImageClassification.from_pretrained(config.parent)
facts = json.loads((config.parent / "understudy.json").read_text())
with torch.inference_mode():
    logits = net((torch.from_numpy(images) / 255 - facts["mean"][0]) / facts["std"][0]).logits
found["transformers alone"] = [net.config.id2label[index] for index in logits.argmax(dim=-1).tolist()]
model = mlflow.pyfunc.load_model("models:/lm@challenger")
texts = pd.DataFrame({"text": ["Return the value of the value.", "of"]})
found["lm"] = model.predict(texts, params={"max_new_tokens": 5}).to_dict("list")
print(json.dumps(found))
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's module and a package that it imports."""
    folder = tmp_path / "modules"
    (folder / "layers").mkdir(parents=True)
    (folder / "ownnet.py").write_text(NET)
    (folder / "layers" / "__init__.py").touch()
    (folder / "layers" / "head.py").write_text(HEAD)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def save_with_code(folder: Path) -> Path:
    """A model that was fetched with code of its own, which the recipe trusted."""
    import torch

    folder.mkdir()
    auto = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForImageClassification": "modeling_own.OwnNet"}
    config = {"model_type": "own-net", "auto_map": auto, "architectures": ["OwnNet"]}
    config |= {"id2label": {str(index): label for index, label in enumerate(describe_images()["labels"])}}
    description = {**describe_images(), "kind": "transformers", "config": config, "code": CODE}
    save_model(folder, {"layer.weight": torch.randn(3, 64), "layer.bias": torch.randn(3)}, description)
    return folder


def picture(path: Path, seed: int, size: tuple[int, int]) -> str:
    """A colourful JPEG."""
    rng = np.random.default_rng(seed)
    Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(path)
    return str(path)


def trained_tokenizer(path: Path) -> Path:
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["Return the value of the value."] * 3, vocab_size=280, special_tokens=["<eos>"])
    tokenizer.save(str(path))
    return path


def make_models(folder: Path) -> dict[str, Path]:
    factory = {"factory": "ownnet:net", "kwargs": {"width": 12}}
    lm = {"type": "llama", "config": {**SMALL, "max_position_embeddings": 16}}
    text = {"task": "causal-lm", "vocab_size": 280, "eos_id": 0, "sequence_length": 8}
    return {
        "vit": save(folder / "vit", VIT, describe_images()),
        "factory": save(folder / "factory", factory, describe_images()),
        "own": save_with_code(folder / "own"),
        "lm": save(folder / "lm", lm, text, trained_tokenizer(folder / "tokenizer.json")),
    }


def probabilities(model: Path, images: Any) -> Any:
    import torch

    with torch.inference_mode():
        logits = loaded(model)(torch.from_numpy(images)).logits
    return logits.double().softmax(dim=-1).numpy()


def text_answers(model: Path) -> dict[str, list[Any]]:
    """The same, from the definition: every token predicted from its window, one after the other."""
    import torch
    from tokenizers import Tokenizer

    net, tokenizer = loaded(model), Tokenizer.from_file(str(model / "tokenizer.json"))
    expected: dict[str, list[Any]] = {"completion": [], "bits_per_byte": []}
    for text in ("Return the value of the value.", "of"):
        tokens = [0, *tokenizer.encode(text).ids, 0]
        bits = 0.0
        for position in range(1, len(tokens)):
            window = tokens[(position - 1) // 8 * 8 : position]
            with torch.inference_mode():
                bits -= float(
                    net(torch.tensor([window])).logits[0, -1].double().log_softmax(-1)[tokens[position]]
                ) / np.log(2)
        sequence = tokens[:-1]
        for _ in range(5):
            with torch.inference_mode():
                following = int(net(torch.tensor([sequence[-8:]])).logits[0, -1].argmax())
            if following == 0:
                break
            sequence.append(following)
        expected["completion"].append(tokenizer.decode(sequence[len(tokens) - 1 :]))
        expected["bits_per_byte"].append(bits / len(text.encode()))
    return expected


def fresh_environment(folder: Path, uri: str, names: list[str]) -> Path:
    """A virtual environment with the versions' requirements, from uv's cache if it has them."""
    from mlflow.artifacts import download_artifacts

    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    requirements: list[str] = []
    for name in names:
        (folder / name).mkdir()
        fetched = download_artifacts(
            f"models:/{name}@challenger/requirements.txt", tracking_uri=uri, dst_path=str(folder / name)
        )
        requirements += ["-r", fetched]
    install = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), *requirements]
    if subprocess.run([*install, "--offline"], check=False, capture_output=True).returncode:
        subprocess.run(install, check=True)
    return folder / "bin" / "python"


def without_network() -> list[str]:
    """A command prefix that takes the network away, where this user may do that."""
    allowed = subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode == 0
    return ["unshare", "-n"] if allowed else []


@pytest.mark.full
@pytest.mark.usefixtures("imported_code")
def test_versions_answer_alone_as_the_store_measured_them(tmp_path: Path, local: str, modules: Path) -> None:
    saved = make_models(tmp_path)
    (tmp_path / "pipeline").mkdir()
    for name, model in saved.items():
        pipeline = Pipeline(tmp_path / "pipeline", local, {**RECIPE, "name": name})
        pipeline.register(student=pipeline.adopt(model))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 1, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    photos = [picture(tmp_path / f"{number}.jpeg", seed=number, size=(37, 20 + number)) for number in range(2)]
    connect(local)
    python = fresh_environment(tmp_path / "venv", local, list(saved))
    for path in (tmp_path / "pipeline", modules, *saved.values()):
        path.rename(path.with_name(f"{path.name}-gone"))
    command = [*without_network(), str(python), "-I", "-c", ELSEWHERE, local, str(tmp_path / "images.npy"), *photos]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env={**environment, "MLFLOW_DISABLE_TELEMETRY": "true"}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    predictions = json.loads(done.stdout.splitlines()[-1])
    for path in (modules, *saved.values()):
        path.with_name(f"{path.name}-gone").rename(path)
    for name in ("vit", "factory", "own"):
        expected = probabilities(saved[name], images)
        np.testing.assert_allclose(predictions[name]["probabilities"], expected, rtol=1e-4, atol=1e-6)
        assert predictions[name]["label"] == [["ant", "bee", "cat"][index] for index in expected.argmax(axis=1)]
        prepared = np.stack([pixels(Path(photo).read_bytes(), 8, 1) for photo in photos])
        expected = probabilities(saved[name], prepared)
        np.testing.assert_allclose(predictions[f"{name} of photos"]["probabilities"], expected, rtol=1e-4, atol=1e-6)
    assert predictions["transformers alone"] == predictions["vit"]["label"]
    expected = text_answers(saved["lm"])
    assert predictions["lm"]["completion"] == expected["completion"]
    np.testing.assert_allclose(predictions["lm"]["bits_per_byte"], expected["bits_per_byte"], rtol=1e-4)
    shutil.rmtree(tmp_path / "venv")


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType")  # MLflow's, about a server's inputs
@pytest.mark.parametrize("damage", ["whole", "two files", "a weight is missing", "a weight is unknown"])
def test_a_factorys_weights_are_all_there_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    import importlib

    import torch
    from safetensors.torch import save_file

    monkeypatch.setattr(
        "mlflow.models.ModelConfig", lambda: {"stride": None, "precision": "fp32"}
    )  # read when the file is
    monkeypatch.delitem(sys.modules, "understudy.registry.serving", raising=False)
    serving = importlib.import_module("understudy.registry.serving")
    monkeypatch.delitem(sys.modules, "understudy.registry.serving")
    model = torch.nn.Linear(2, 3)
    state = dict(model.state_dict())
    if damage == "two files":
        save_file({"weight": state["weight"]}, tmp_path / "model-00001-of-00002.safetensors")
        save_file({"bias": state["bias"]}, tmp_path / "model-00002-of-00002.safetensors")
    else:
        tensors = {name: tensor for name, tensor in state.items() if name == "weight" or "missing" not in damage}
        save_file(tensors | ({"other": torch.zeros(1)} if "unknown" in damage else {}), tmp_path / "model.safetensors")
    served = serving.Served()
    served.folder = tmp_path
    served.facts = {"kind": "factory", "factory": "torch.nn:Linear", "kwargs": {"in_features": 2, "out_features": 3}}
    if damage.startswith("a weight"):
        with pytest.raises(ValueError, match=r"weights are missing|unknown"):
            served._net()
    else:
        assert all(torch.equal(tensor, state[name]) for name, tensor in served._net().state_dict().items())
