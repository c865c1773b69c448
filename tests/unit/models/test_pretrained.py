import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub import errors
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertLMHeadModel,
    DeiTConfig,
    DeiTForImageClassification,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)
from transformers.utils import logging

from tests.unit.models.loading import loaded, parameter_count
from understudy.errors import InputError
from understudy.models import pretrained
from understudy.models.facts import DESCRIPTION, WEIGHTS
from understudy.models.normalization import PREPROCESSOR
from understudy.recipe import PretrainedModel
from understudy.store.files import Fingerprints

WHERE = "teacher.model"
CPU = torch.device("cpu")
VIT = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 8,
    "num_channels": 1,
    "patch_size": 4,
}
GPT2 = {
    "vocab_size": 50,
    "n_embd": 8,
    "n_head": 2,
    "n_layer": 1,
    "n_positions": 16,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
IMAGES = {
    "task": "image-classification",
    "labels": ["a", "b", "c"],
    "image": {"size": 8, "channels": 1},
    "mean": [0.4],
    "std": [0.2],
}
TEXTS = {"task": "causal-lm", "vocab_size": 50, "eos_id": 0, "sequence_length": 16}

Fetched = Callable[..., torch.nn.Module]


def labels(*names: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def vit(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A classifier of a, b and c, as its maker publishes it."""
    torch.manual_seed(seed)
    logging.disable_progress_bar()
    ViTForImageClassification(ViTConfig(**{**VIT, **labels("a", "b", "c"), **changes})).save_pretrained(folder)
    return preprocessed(folder)


def preprocessed(folder: Path) -> Path:
    """The folder, with its maker's settings of the images that it was trained with."""
    (folder / PREPROCESSOR).write_text('{"image_mean": 0.4, "image_std": 0.2}')
    return folder


def gpt2(folder: Path, **changes: Any) -> Path:
    logging.disable_progress_bar()
    GPT2LMHeadModel(GPT2Config(**{**GPT2, **changes})).save_pretrained(folder)
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "examples.json").write_text(json.dumps(IMAGES))
    return tmp_path / "images"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "examples.json").write_text(json.dumps(TEXTS))
    (tmp_path / "texts" / "tokenizer.json").write_text("the tokenizer")
    return tmp_path / "texts"


def fetched(source: Path | str, examples: Path, head: str = "kept", **model: Any) -> Path:
    folder = examples.parent / "fetched"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pretrained.fetch(PretrainedModel(pretrained=str(source), **model), examples, folder, WHERE, head)
    return folder


def refused(message: str, source: Path | str, examples: Path, head: str = "kept", **model: Any) -> None:
    with pytest.raises(InputError, match=message) as caught:
        fetched(source, examples, head, **model)
    assert len(str(caught.value).splitlines()) == 1


def same_weights(ours: Path, source: Path) -> bool:
    """Whether a folder of ours holds the weights that transformers reads from a folder, where names may differ."""
    kind = json.loads((source / "config.json").read_text())["architectures"][0]
    expected = getattr(transformers, kind).from_pretrained(source, dtype=torch.float32).state_dict()
    weights = load_file(ours / WEIGHTS)
    return all(torch.equal(tensor, expected[name]) for name, tensor in weights.items()) and len(weights) > 10


def test_a_model_is_taken_as_it_is(images: Path, tmp_path: Path) -> None:
    source = vit(tmp_path / "source")
    folder = fetched(source, images)
    assert same_weights(folder, source)
    pixels = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    original = ViTForImageClassification.from_pretrained(source).eval()
    with torch.no_grad():
        expected = original((pixels / 255 - 0.4) / 0.2).logits
        torch.testing.assert_close(loaded(folder)(pixels).logits, expected)


def test_a_model_of_an_architecture_with_several_classifiers_is_taken(images: Path, tmp_path: Path) -> None:
    """transformers has two for deit, and chooses by the configuration."""
    logging.disable_progress_bar()
    DeiTForImageClassification(DeiTConfig(**VIT, **labels("a", "b", "c"))).save_pretrained(tmp_path / "source")
    folder = fetched(preprocessed(tmp_path / "source"), images)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["DeiTForImageClassification"]
    assert loaded(folder)(torch.zeros(1, 1, 8, 8, dtype=torch.uint8)).logits.shape == (1, 3)


def test_a_language_model_is_taken_with_the_datas_tokenizer(texts: Path, tmp_path: Path) -> None:
    source = gpt2(tmp_path / "source")
    folder = fetched(source, texts)
    assert same_weights(folder, source)
    assert (folder / "tokenizer.json").read_text() == "the tokenizer"
    assert loaded(folder)(torch.zeros(2, 16, dtype=torch.long)).logits.shape == (2, 16, 50)


def test_a_vocabulary_that_was_padded_is_cut(texts: Path, tmp_path: Path) -> None:
    folder = fetched(gpt2(tmp_path / "source", vocab_size=64), texts)
    assert loaded(folder)(torch.zeros(2, 16, dtype=torch.long)).logits.shape == (2, 16, 50)


def test_half_precision_weights_become_full(images: Path, tmp_path: Path) -> None:
    source = vit(tmp_path / "source")
    halves = {name: tensor.bfloat16() for name, tensor in load_file(source / WEIGHTS).items()}
    save_file(halves, source / WEIGHTS, metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    folder = fetched(source, images)
    assert same_weights(folder, source)
    assert {tensor.dtype for tensor in load_file(folder / WEIGHTS).values()} == {torch.float32}


def test_sharded_weights_become_one_file(images: Path, tmp_path: Path) -> None:
    logging.disable_progress_bar()
    unsharded = vit(tmp_path / "whole")
    ViTForImageClassification.from_pretrained(unsharded).save_pretrained(tmp_path / "sharded", max_shard_size="2KB")
    preprocessed(tmp_path / "sharded")
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 1
    assert same_weights(fetched(tmp_path / "sharded", images), unsharded)


def test_a_model_that_is_trained_further_gets_a_head_for_the_datas_labels(images: Path, tmp_path: Path) -> None:
    source = vit(tmp_path / "source", **labels("v", "w", "x", "y", "z"))
    refused(r"teacher\.model: its 5 labels \(v, w, x, y, z, \.\.\.\) are not the data's 3 \(a, b, c", source, images)
    folder = fetched(source, images, "new")
    before = ViTForImageClassification.from_pretrained(source).state_dict()
    after = load_file(folder / WEIGHTS)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert json.loads((folder / DESCRIPTION).read_text())["labels"] == ["a", "b", "c"]
    again = fetched(source, images, "new")
    assert torch.equal(load_file(again / WEIGHTS)["classifier.weight"], after["classifier.weight"])


def test_as_many_labels_of_other_names_are_no_labels_of_the_data(images: Path, tmp_path: Path) -> None:
    source = vit(tmp_path / "source", **labels("x", "y", "z"))
    refused(r"its 3 labels \(x, y, z", source, images)
    assert loaded(fetched(source, images, "new"))


def classifies(folder: Path, source: Path) -> None:
    """Whether a folder of ours gives the logits of a, b and c that transformers gives by the names of its outputs."""
    pixels = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    original = ViTForImageClassification.from_pretrained(source).eval()
    with torch.no_grad():
        expected = original((pixels / 255 - 0.4) / 0.2).logits[:, [original.config.label2id[name] for name in "abc"]]
        torch.testing.assert_close(loaded(folder)(pixels).logits, expected)


def test_labels_in_another_order_are_matched_by_name(images: Path, tmp_path: Path) -> None:
    source = vit(tmp_path / "source", **labels("c", "a", "b"))
    folder = fetched(source, images)
    classifies(folder, source)
    assert json.loads((folder / "config.json").read_text())["id2label"] == {"0": "a", "1": "b", "2": "c"}
    assert json.loads((folder / DESCRIPTION).read_text())["config"]["id2label"] == {"0": "a", "1": "b", "2": "c"}
    again = shutil.copytree(folder, tmp_path / "again")
    classifies(fetched(again, images), source)  # the saved configuration is right for its next reader


def test_outputs_without_names_get_the_recipes(images: Path, tmp_path: Path) -> None:
    unnamed = vit(tmp_path / "source", **labels("LABEL_0", "LABEL_1", "LABEL_2"))
    named = vit(tmp_path / "named", **labels("c", "a", "b"))
    refused(r"teacher\.model: its outputs have no names .* teacher\.model\.labels: \[a, b, c\]", unnamed, images)
    classifies(fetched(unnamed, images, labels=("c", "a", "b")), named)


def test_a_model_without_a_head_can_only_be_trained_further(images: Path, tmp_path: Path) -> None:
    logging.disable_progress_bar()
    ViTModel(ViTConfig(**VIT, **labels("a", "b", "c"))).save_pretrained(tmp_path / "base")
    preprocessed(tmp_path / "base")
    refused(
        r"teacher\.model\.pretrained: has no fitting weights for classifier\.bias, classifier\.weight; .*section train",
        tmp_path / "base",
        images,
    )
    assert loaded(fetched(tmp_path / "base", images, "new"))


@pytest.mark.parametrize("head", ["kept", "new"])
def test_a_model_that_lacks_weights_of_its_body_is_refused(images: Path, tmp_path: Path, head: str) -> None:
    source = vit(tmp_path / "source")
    weights = load_file(source / WEIGHTS)
    del weights["vit.layernorm.weight"]
    save_file(weights, source / WEIGHTS, metadata={"format": "pt"})
    refused(r"has no fitting weights for vit\.layernorm\.weight; take a model", source, images, head)


@pytest.mark.parametrize("head", ["kept", "new"])
def test_weights_of_another_shape_than_the_config_says_are_refused(images: Path, tmp_path: Path, head: str) -> None:
    source = vit(tmp_path / "source")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "hidden_size": 10}))
    refused(r"has no fitting weights for .*, \.\.\.; take a model", source, images, head)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 16}, r"takes images of 16 x 16 pixels in 1 channels; set data\.image\.size=16 and"),
        ({"num_channels": 3}, r"takes images of 8 x 8 pixels in 3 channels; set .* data\.image\.channels=3"),
    ],
)
@pytest.mark.parametrize("head", ["kept", "new"])
def test_images_of_another_shape_are_refused(
    images: Path, tmp_path: Path, changes: dict[str, Any], message: str, head: str
) -> None:
    refused(message, vit(tmp_path / "source", **changes), images, head)


def test_a_smaller_vocabulary_is_refused(texts: Path, tmp_path: Path) -> None:
    message = r"has 40 tokens, the data has 50; .*data\.text\.tokenizer\.pretrained"
    refused(message, gpt2(tmp_path / "source", vocab_size=40), texts)


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        ("GPT2LMHeadModel", True),
        ("GPT2Model", True),
        ("GPT2ForSequenceClassification", False),
        ("GPT2ForTokenClassification", False),
        ("GPT2ForQuestionAnswering", False),
        ("GPT2DoubleHeadsModel", True),
    ],
)
def test_a_model_with_another_head_is_no_language_model(texts: Path, tmp_path: Path, kind: str, fits: bool) -> None:
    """Its last layer is tied, so that no weight would be missing."""
    getattr(transformers, kind)(GPT2Config(**GPT2, pad_token_id=0)).save_pretrained(tmp_path / "source")
    if fits:
        assert loaded(fetched(tmp_path / "source", texts))
    else:
        refused(f"is a {kind}, not a language model", tmp_path / "source", texts)


def test_tokens_that_were_added_to_the_tokenizer_alone_are_told(texts: Path, tmp_path: Path) -> None:
    source = gpt2(tmp_path / "source", vocab_size=49)
    refused("not to the model: remove them from tokenizer.json, or save the model after resize_", source, texts)


def test_fewer_positions_than_a_sequence_has_are_refused(texts: Path, tmp_path: Path) -> None:
    message = r"teacher\.model\.pretrained: sees 8 positions, data\.text\.sequence_length is 16"
    refused(message, gpt2(tmp_path / "source", n_positions=8), texts)


def test_a_model_that_sees_the_tokens_to_come_is_refused(texts: Path, tmp_path: Path) -> None:
    logging.disable_progress_bar()
    config = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    BertLMHeadModel(config).save_pretrained(tmp_path / "source")
    refused(
        r"a bert sees the tokens that it is to predict unless its config says is_decoder: true",
        tmp_path / "source",
        texts,
    )


def test_a_model_for_another_task_is_refused(texts: Path, images: Path, tmp_path: Path) -> None:
    refused(r"vit is no architecture for the task causal-lm", vit(tmp_path / "vit"), texts)
    refused(r"gpt2 is no architecture for the task image-classification", gpt2(tmp_path / "gpt2"), images)


def pickled(folder: Path) -> Path:
    torch.save(load_file(vit(folder) / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    return folder


def test_pickle_is_opened_only_where_the_recipe_says_so(images: Path, tmp_path: Path) -> None:
    source, original = pickled(tmp_path / "source"), vit(tmp_path / "original")
    refused(
        r"teacher\.model\.pretrained: .* has no safetensors\. Pickle .* set teacher\.model\.allow_pickle: true",
        source,
        images,
    )
    assert same_weights(fetched(source, images, allow_pickle=True), original)
    save_file({"x": torch.zeros(1)}, source / "adapter.safetensors")
    refused(r"no file named model\.safetensors", source, images)


CODE = {
    "configuration_my.py": """
from transformers import PretrainedConfig

class MyConfig(PretrainedConfig):
    model_type = "my-net"
""",
    "layers.py": """
from torch import nn

def layer(labels):
    return nn.Linear(64, labels)
""",
    "modeling_my.py": """
from transformers import PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutput

from .configuration_my import MyConfig
from .layers import layer

class MyNet(PreTrainedModel):
    config_class = MyConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = layer(config.num_labels)
        self.post_init()

    def forward(self, pixel_values):
        return ImageClassifierOutput(logits=self.layer(pixel_values.flatten(1)))
""",
}


def with_code(folder: Path) -> Path:
    folder.mkdir()
    for name, text in CODE.items():
        (folder / name).write_text(text)
    auto = {"AutoConfig": "configuration_my.MyConfig", "AutoModelForImageClassification": "modeling_my.MyNet"}
    config = {"model_type": "my-net", "architectures": ["MyNet"], "auto_map": auto, **labels("a", "b", "c")}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"layer.weight": torch.randn(3, 64), "layer.bias": torch.zeros(3)}, folder / WEIGHTS, {"format": "pt"})
    return preprocessed(folder)


@pytest.mark.usefixtures("imported_code")
def test_a_models_own_code_runs_only_where_the_recipe_says_so(images: Path, tmp_path: Path) -> None:
    source = with_code(tmp_path / "source")
    refused(
        r"teacher\.model\.pretrained: .* has code of its own, .* Set teacher\.model\.trust_remote_code: true",
        source,
        images,
    )
    folder = fetched(source, images, trust_remote_code=True)
    shutil.rmtree(source)  # all that the model needs is in the store by now
    weights = load_file(folder / WEIGHTS)
    pixels = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    expected = ((pixels / 255 - 0.4) / 0.2).flatten(1) @ weights["layer.weight"].T
    with torch.no_grad():
        torch.testing.assert_close(loaded(folder)(pixels).logits, expected)
    assert parameter_count(folder) == 3 * 64 + 3
    assert (folder / "layers.py").read_text() == CODE["layers.py"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300])
def test_weights_that_are_no_numbers_are_refused(images: Path, tmp_path: Path, number: float) -> None:
    """1e300 is none in fp32, which models are saved in."""
    source = vit(tmp_path / "vit", **labels("a", "b", "c"))
    weights = {name: weight.double() for name, weight in load_file(source / WEIGHTS).items()}
    weights["classifier.bias"][1] = number
    save_file(weights, source / WEIGHTS, {"format": "pt"})
    refused(r"teacher\.model\.pretrained: classifier\.bias has weights that are not finite", source, images)


def say_quantised(config: Path) -> None:
    config_values = json.loads(config.read_text())
    config.write_text(json.dumps({**config_values, "quantization_config": {"quant_method": "fp8"}}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"has no config\.json; give a folder in the hub's format"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json' is not a valid JSON file"),
        (lambda folder: (folder / "config.json").write_text("{}"), r"Unrecognized model"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"\xff" * 99), r"Error while deserializing header"),
        (lambda folder: (folder / WEIGHTS).unlink(), r"has no safetensors"),
        (lambda folder: say_quantised(folder / "config.json"), r"is quantised; take the model that it was made from"),
    ],
)
def test_a_folder_that_is_not_whole_is_named(
    images: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    source = vit(tmp_path / "source")
    damage(source)
    refused(rf"teacher\.model\.pretrained: .*{message}", source, images)


def test_a_model_of_ours_keeps_its_own_normalisation(images: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(fetched(vit(tmp_path / "source"), images), tmp_path / "ours"))
    (images / "examples.json").write_text(json.dumps({**IMAGES, "mean": [0.9], "std": [0.1]}))
    description = json.loads((fetched(source, images) / DESCRIPTION).read_text())
    assert (description["mean"], description["std"]) == ([0.4], [0.2])


def test_a_folder_is_known_by_its_content(tmp_path: Path) -> None:
    fingerprints = Fingerprints(tmp_path)
    first, second = vit(tmp_path / "first"), vit(tmp_path / "second")
    other_model = vit(tmp_path / "other", seed=1)
    identities = [
        pretrained.identity(PretrainedModel(pretrained=str(f)), fingerprints, WHERE)
        for f in (first, second, other_model)
    ]
    assert identities[0] == identities[1] != identities[2]


def test_a_commit_is_its_own_identity(tmp_path: Path) -> None:
    model = PretrainedModel(pretrained="owner/name", revision="0123456789" * 4)
    assert pretrained.identity(model, Fingerprints(tmp_path), WHERE) == "0123456789" * 4


def hub(monkeypatch: pytest.MonkeyPatch, outcome: Exception | Path) -> list[tuple[str, str, str | None]]:
    """Let the hub answer with an error, or with the files of a folder; the list holds the requests."""
    requests: list[tuple[str, str, str | None]] = []

    def download(repository: str, name: str, *, revision: str | None = None) -> str:
        requests.append((repository, name, revision))
        if isinstance(outcome, Exception):
            raise outcome
        if not (outcome / name).exists():
            raise errors.EntryNotFoundError(f"no {name}")
        return str(outcome / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return requests


def test_a_hub_model_is_fetched_at_the_commit_that_its_name_points_to(
    monkeypatch: pytest.MonkeyPatch, images: Path, tmp_path: Path
) -> None:
    commit = "c" * 40
    source = vit(tmp_path / "snapshots" / commit)
    (source / PREPROCESSOR).write_text('{"image_mean": [0.5], "image_std": [0.5]}')
    requests = hub(monkeypatch, source)
    model = PretrainedModel(pretrained="owner/name", revision="v1")
    assert pretrained.identity(model, Fingerprints(tmp_path), WHERE) == commit
    assert same_weights(fetched("owner/name", images, revision="v1"), source)
    assert {revision for _, name, revision in requests if name == "config.json"} == {"v1"}
    assert {revision for _, name, revision in requests if name != "config.json"} == {commit}
    assert json.loads((images.parent / "fetched" / DESCRIPTION).read_text())["mean"] == [0.5]


@pytest.mark.usefixtures("imported_code")
def test_a_hub_models_shards_and_code_are_fetched_too(
    monkeypatch: pytest.MonkeyPatch, images: Path, tmp_path: Path
) -> None:
    source = with_code(tmp_path / "remote")
    requests = hub(monkeypatch, source)
    fetched("owner/name", images, trust_remote_code=True)
    assert {name for _, name, _ in requests if name.endswith(".py")} == set(CODE)
    logging.disable_progress_bar()
    sharded = tmp_path / "sharded"
    ViTForImageClassification(ViTConfig(**VIT, **labels("a", "b", "c"))).save_pretrained(sharded, max_shard_size="2KB")
    preprocessed(sharded)
    requests = hub(monkeypatch, sharded)
    fetched("owner/name", images)
    shards = {path.name for path in sharded.glob("model-*.safetensors")}
    assert {name for _, name, _ in requests} >= shards
    assert not any(name.endswith((".bin", ".py")) for _, name, _ in requests)


def described(description: Any) -> dict[str, Any]:
    """A description without the values that depend on the class of the loaded weights."""
    return {
        **description,
        "config": {name: value for name, value in description["config"].items() if name != "architectures"},
    }


@pytest.mark.parametrize("head", ["kept", "new"])
@pytest.mark.parametrize("kind", ["images", "texts"])
def test_what_it_is_going_to_be_is_foreseen_without_weights(
    monkeypatch: pytest.MonkeyPatch, images: Path, texts: Path, tmp_path: Path, kind: str, head: pretrained.Head
) -> None:
    commit = "c" * 40
    make, examples, facts = (vit, images, IMAGES) if kind == "images" else (gpt2, texts, TEXTS)
    source = make(tmp_path / "snapshots" / commit)
    expected = described(json.loads((fetched(source, examples, head) / DESCRIPTION).read_text()))
    requests = hub(monkeypatch, source)
    (source / WEIGHTS).write_bytes(b"")
    for name in (str(source), "owner/name"):
        foreseen = pretrained.expected_description(PretrainedModel(pretrained=name, revision="v1"), facts, WHERE, head)
        assert json.loads(json.dumps(described(foreseen))) == expected
    assert requests == [("owner/name", "config.json", "v1"), ("owner/name", PREPROCESSOR, commit)]


@pytest.mark.usefixtures("imported_code")
def test_code_that_is_trusted_is_foreseen_too_and_none_else_is_run(
    monkeypatch: pytest.MonkeyPatch, images: Path, tmp_path: Path
) -> None:
    source = with_code(tmp_path / "remote")
    requests = hub(monkeypatch, source)
    foreseen = pretrained.expected_description(
        PretrainedModel(pretrained="owner/name", trust_remote_code=True), IMAGES, WHERE, "kept"
    )
    assert set(foreseen["code"]) == set(CODE) == {name for _, name, _ in requests if name.endswith(".py")}
    with pytest.raises(InputError, match="has code of its own, which would run here"):
        pretrained.expected_description(PretrainedModel(pretrained="owner/name"), IMAGES, WHERE, "kept")


def test_pickle_is_not_even_downloaded_unless_the_recipe_says_so(
    monkeypatch: pytest.MonkeyPatch, images: Path, tmp_path: Path
) -> None:
    source = pickled(tmp_path / "source")
    requests = hub(monkeypatch, source)
    (source / "pytorch_model.bin").rename(tmp_path / "kept")
    refused(r"owner/name has no safetensors", "owner/name", images)
    assert not any(name.endswith(".bin") for _, name, _ in requests)
    (tmp_path / "kept").rename(source / "pytorch_model.bin")
    fetched("owner/name", images, allow_pickle=True)
    assert any(name == "pytorch_model.bin" for _, name, _ in requests)


def http(kind: type[Any], message: str) -> Any:
    return kind(message, response=SimpleNamespace(headers={}, request=None))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (http(errors.GatedRepoError, "gated"), r"owner/name is gated\. Ask for access .* hf auth login"),
        (
            http(errors.RepositoryNotFoundError, "no"),
            r"no such repository, or does not show it to you \(401\)",
        ),
        (http(errors.RevisionNotFoundError, "no"), r"owner/name has no revision v1\."),
        (errors.LocalEntryNotFoundError("no"), r"the hub cannot be reached and config\.json is not in the cache"),
        (errors.OfflineModeIsEnabled("no"), r"the hub cannot be reached"),
        (errors.EntryNotFoundError("no"), r"owner/name has no config\.json; is it a transformers model\?"),
        (
            http(errors.HfHubHTTPError, "403 Forbidden"),
            r"the hub refused config\.json \(403 Forbidden",
        ),
    ],
)
def test_what_the_hub_refuses_is_said_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, images: Path, tmp_path: Path, error: Exception, message: str
) -> None:
    hub(monkeypatch, error)
    refused(rf"teacher\.model\.pretrained: .*{message}", "owner/name", images, revision="v1")
    model = PretrainedModel(pretrained="owner/name", revision="v1")
    with pytest.raises(InputError, match=message):
        pretrained.identity(model, Fingerprints(tmp_path), WHERE)


def test_a_hub_id_without_network_is_refused(monkeypatch: pytest.MonkeyPatch, images: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused(r"owner/no-such-name.*the hub cannot be reached.*give the folder of a copy", "owner/no-such-name", images)


@pytest.mark.parametrize("name", ["/no/such/folder", "./no-such-folder", "a/b/c", "sp ace"])
def test_what_is_neither_a_folder_nor_a_hub_id_is_refused(images: Path, name: str) -> None:
    refused(r"is neither a folder here nor a hub id \(owner/name\)", name, images)
