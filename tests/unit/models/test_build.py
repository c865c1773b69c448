import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.func import functional_call
from transformers.utils import logging

from tests.unit.models.loading import loaded, parameter_count
from tests.unit.models.sections import section
from understudy.errors import InputError, UnderstudyError
from understudy.models.build import build_model, probe_model, tied_weights, uninitialized_model
from understudy.models.describe import describe
from understudy.models.facts import DESCRIPTION, WEIGHTS
from understudy.models.files import save_model
from understudy.models.size import flops_per_example
from understudy.models.tasks import task_model
from understudy.models.weight_files import weight_bytes
from understudy.recipe import ArchitectureModel

IMAGES = {
    "task": "image-classification",
    "labels": ["a", "b", "c"],
    "image": {"size": 8, "channels": 1},
    "mean": [0.4],
    "std": [0.2],
}
TEXTS = {"task": "causal-lm", "vocab_size": 50, "eos_id": 3, "sequence_length": 16}
VIT = {
    "type": "vit",
    "config": {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "patch_size": 4,
    },
}
RESNET = {
    "type": "resnet",
    "config": {"embedding_size": 4, "hidden_sizes": [4, 6], "depths": [1, 1], "layer_type": "basic"},
}
GPT2 = {"type": "gpt2", "config": {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}}
LLAMA = {
    "type": "llama",
    "config": {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12},
}
BERT = {
    "type": "bert",
    "config": {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 16,
    },
}
KINDS = [(VIT, IMAGES), (RESNET, IMAGES), (GPT2, TEXTS), (LLAMA, TEXTS), (BERT, TEXTS)]
NAMES = [spec["type"] for spec, _ in KINDS]
CPU = torch.device("cpu")

FACTORY = """
import torch
from torch import nn

def small(num_labels, image_size, hidden=5, *, bias=True):
    first, norm = nn.Linear(image_size**2, hidden, bias), nn.BatchNorm1d(hidden)
    return nn.Sequential(nn.Flatten(), first, norm, nn.Linear(hidden, num_labels))

def anything(**kwargs):
    return nn.Linear(1, len(kwargs))

def looks_at_values(num_labels):
    rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
    return nn.Sequential(nn.Flatten(), nn.Dropout(rates[-1]), nn.Linear(64, num_labels))

def number():
    return 5

def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))

class Embedded(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.table = nn.Embedding(vocab_size, 4)
        self.head = nn.Linear(4, vocab_size, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.table(tokens))
"""


@pytest.fixture(autouse=True)
def factories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "factories_of_a_test.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "factories_of_a_test", raising=False)


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.disable_progress_bar()


def factory(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"factory": f"factories_of_a_test:{name}", "kwargs": kwargs}


def inputs(examples: dict[str, Any], count: int = 4) -> Tensor:
    random = torch.Generator().manual_seed(1)
    if examples is IMAGES:
        return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=random)
    return torch.randint(0, 50, (count, 16), generator=random)


def built(spec: dict[str, Any], examples: dict[str, Any], seed: int = 0) -> tuple[nn.Module, dict[str, Any]]:
    description = describe(section(spec), examples, "student.model")
    torch.manual_seed(seed)
    return build_model(description), description


def saved(model: nn.Module, description: dict[str, Any], folder: Path) -> Path:
    folder.mkdir()
    aliases = tied_weights(model)
    save_model(
        folder, {name: tensor for name, tensor in model.state_dict().items() if name not in aliases}, description
    )
    return folder


def different(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**config, "config": {**config["config"], **changes}}


@pytest.mark.parametrize(("spec", "examples"), KINDS, ids=NAMES)
def test_inputs_as_they_are_stored_become_logits(spec: dict[str, Any], examples: dict[str, Any]) -> None:
    model, _ = built(spec, examples)
    logits = model.eval()(inputs(examples)).logits
    assert logits.shape == ((4, 3) if examples is IMAGES else (4, 16, 50))
    assert logits.dtype is torch.float32


def test_images_are_normalised_inside() -> None:
    model, _ = built(VIT, IMAGES)
    images = inputs(IMAGES)
    expected = model.eval().net((images.float() / 255 - 0.4) / 0.2).logits
    torch.testing.assert_close(model(images).logits, expected)


@pytest.mark.parametrize(("spec", "examples"), KINDS, ids=NAMES)
def test_weights_follow_from_the_seed(spec: dict[str, Any], examples: dict[str, Any]) -> None:
    states = [built(spec, examples, seed)[0].state_dict() for seed in (1, 1, 2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not all(torch.equal(states[0][name], states[2][name]) for name in states[0])


@pytest.mark.parametrize("spec", [GPT2, LLAMA, BERT], ids=["gpt2", "llama", "bert"])
def test_a_language_model_does_not_see_what_it_is_to_predict(spec: dict[str, Any]) -> None:
    model = built(spec, TEXTS)[0].eval()
    tokens = inputs(TEXTS, 1)
    changed = tokens.clone()
    changed[0, 9:] = 7
    before, after = model(tokens).logits, model(changed).logits
    torch.testing.assert_close(before[0, :9], after[0, :9])
    assert not torch.allclose(before[0, 9:], after[0, 9:])


@pytest.mark.parametrize("spec", [GPT2, LLAMA])
def test_a_language_model_knows_the_end_of_a_text(spec: dict[str, Any]) -> None:
    config = describe(section(spec), TEXTS, "student.model")["config"]
    assert (config["bos_token_id"], config["eos_token_id"]) == (3, 3)


@pytest.mark.parametrize(("spec", "examples"), KINDS, ids=NAMES)
def test_a_saved_model_is_the_same_bit_for_bit(spec: dict[str, Any], examples: dict[str, Any], tmp_path: Path) -> None:
    model, description = built(spec, examples)
    for batch in range(2):  # running means of a batch norm are part of a model
        model.train()(inputs(examples, 3 + batch))
    again = loaded(saved(model, description, tmp_path / "model"))
    assert not again.training
    state = again.state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        assert torch.equal(again(inputs(examples)).logits, model.eval()(inputs(examples)).logits)


@pytest.mark.parametrize(("spec", "examples"), KINDS, ids=NAMES)
def test_a_saved_model_is_one_of_the_hub(spec: dict[str, Any], examples: dict[str, Any], tmp_path: Path) -> None:
    model, description = built(spec, examples)
    folder = saved(model, description, tmp_path / "model")
    auto = transformers.AutoModelForImageClassification if examples is IMAGES else transformers.AutoModelForCausalLM
    plain, loaded = auto.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert not any(loaded.values())
    x = inputs(examples)
    shown = (x / 255 - 0.4) / 0.2 if examples is IMAGES else x
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(shown).logits, model.eval()(x).logits)
    assert json.loads((folder / "config.json").read_text())["architectures"] == [type(model.net).__name__]
    if examples is IMAGES:
        assert plain.config.id2label == {0: "a", 1: "b", 2: "c"}
        assert plain.config.label2id == {"a": 0, "b": 1, "c": 2}


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path: Path) -> None:
    from safetensors import safe_open

    model, description = built(GPT2, TEXTS)
    assert tied_weights(model) == {"net.lm_head.weight"}
    folder = saved(model, description, tmp_path / "model")
    with safe_open(folder / WEIGHTS, "pt") as file:
        assert "lm_head.weight" not in set(file.keys())
        assert file.metadata() == {"format": "pt"}
    again = loaded(folder)
    assert again.net.lm_head.weight is again.net.transformer.wte.weight
    assert tied_weights(built(LLAMA, TEXTS)[0]) == set()


def test_an_undrawn_model_has_the_tied_weights_of_a_real_one() -> None:
    for spec in (GPT2, LLAMA):
        model, description = built(spec, TEXTS)
        assert tied_weights(uninitialized_model(description)) == tied_weights(model)


STAGES = {"hidden_sizes": [8, 8], "depths": [1, 1]}
LOOKING: dict[str, dict[str, Any]] = {
    "bit": {**STAGES, "embedding_size": 8, "num_groups": 2},
    "convnext": {**STAGES, "patch_size": 1, "num_stages": 2},
    "convnextv2": {**STAGES, "patch_size": 1, "num_stages": 2},
    "focalnet": {"embed_dim": 8, "depths": [1, 1], "focal_levels": [1, 1], "focal_windows": [3, 3]},
    "poolformer": {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1]},
    "pvt_v2": {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2]},
}
"""Architectures whose networks look at values while they are built; tensors without memory have none."""


@pytest.mark.parametrize("kind", LOOKING)
def test_a_network_that_looks_at_values_is_tried_too(kind: str) -> None:
    examples = {**IMAGES, "image": {"size": 32, "channels": 3}}
    model, description = built({"type": kind, "config": LOOKING[kind]}, examples)
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    with probe_model(description) as tried:
        shape = tried.eval()(images).logits.shape
        assert all(isinstance(tensor, FakeTensor) for tensor in tried.state_dict().values())
    assert shape == model.eval()(images).logits.shape == (1, 3)
    assert tied_weights(tried) == tied_weights(model)
    sizes = [{name: tensor.shape for name, tensor in module.named_parameters()} for module in (tried, model)]
    assert sizes[0] == sizes[1]


def test_a_tokenizer_goes_along(tmp_path: Path) -> None:
    model, description = built(LLAMA, TEXTS)
    (tmp_path / "tokenizer.json").write_text("the tokenizer")
    (tmp_path / "model").mkdir()
    save_model(tmp_path / "model", model.state_dict(), description, tmp_path / "tokenizer.json")
    assert (tmp_path / "model" / "tokenizer.json").read_text() == "the tokenizer"


@pytest.mark.parametrize(
    "change", [lambda state: state.pop("net.classifier.bias"), lambda state: state.update(x=torch.ones(1))]
)
def test_weights_that_are_not_the_models_are_refused(tmp_path: Path, change: Any) -> None:
    model, description = built(VIT, IMAGES)
    state = model.state_dict()
    change(state)
    (tmp_path / "model").mkdir()
    save_model(tmp_path / "model", state, description)
    modes = {path.stat().st_mode for path in (tmp_path / "model").iterdir()}
    assert len(modes) == 1, "whoever may read one file may read all"
    with pytest.raises(UnderstudyError, match="weights do not fit the model"):
        loaded(tmp_path / "model")


def test_a_setting_may_have_the_name_that_published_configurations_give_it() -> None:
    config = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_experts": 4}
    description: Any = describe(ArchitectureModel(type="qwen3_moe", config=config), TEXTS, "m")
    assert description["config"]["num_local_experts"] == 4


@pytest.mark.parametrize(
    ("spec", "examples", "message"),
    [
        (
            different(VIT, hidden_sise=8),
            IMAGES,
            r"m\.config\.hidden_sise: vit has no such setting; did you mean hidden_size\?",
        ),
        (different(GPT2, num_attention_heads=4), TEXTS, r"m\.config\.num_attention_heads: is another name of n_head,"),
        (different(VIT, zzz=8), IMAGES, r"m\.config\.zzz: vit has no such setting$"),
        (different(VIT, num_labels=5), IMAGES, r"m\.config\.num_labels: is 5, the data has 3; leave it out"),
        (different(VIT, image_size=9), IMAGES, r"m\.config\.image_size: is 9, the data has 8; leave it out"),
        (different(VIT, num_channels=3), IMAGES, r"m\.config\.num_channels: is 3, the data has 1; leave it out"),
        (different(GPT2, vocab_size=51), TEXTS, r"m\.config\.vocab_size: is 51, the data has 50; leave it out"),
        (different(VIT, hidden_size="8"), IMAGES, r"m\.config: .*hidden_size.*expected int, got str"),
        (different(VIT, patch_size=0), IMAGES, r"m\.config: no vit can be built with these values \(ZeroDivisionError"),
        (
            different(GPT2, n_head=3),
            TEXTS,
            r"m\.config: no gpt2 can be built with these values \(ValueError: .*divisible by num_heads",
        ),
        (
            different(LLAMA, num_attention_heads=3),
            TEXTS,
            r"m\.config: The hidden size \(\d+\) is not a multiple of the number of attention heads",
        ),
        (
            different(GPT2, activation_function="x"),
            TEXTS,
            r"m\.config: no gpt2 can be built with these values \(KeyError: 'x'\)",
        ),
        (different(GPT2, n_positions=8), TEXTS, r"m: sees 8 positions, data\.text\.sequence_length is 16"),
        (different(BERT, is_decoder=False), TEXTS, r"m: a bert sees the tokens that it is to predict"),
        ({"type": "vitt", "config": {}}, IMAGES, r"m\.type: transformers has no architecture 'vitt'"),
        ({"type": "vit", "config": {}}, TEXTS, r"m: vit is no architecture for the task causal-lm"),
        ({"type": "gpt2", "config": {}}, IMAGES, r"m: gpt2 is no architecture for the task image-classification"),
        (
            factory("small", hiden=3),
            IMAGES,
            r"m\.kwargs: .*:small\(num_labels, .*\) does not take these arguments: .*'hiden'",
        ),
        (factory("small"), TEXTS, r"m\.kwargs: .* missing a required argument: 'num_labels'"),
        (factory("none"), IMAGES, r"m\.factory: factories_of_a_test:none cannot be imported .*PYTHONPATH"),
        ({"factory": "no_such_module:f", "kwargs": {}}, IMAGES, r"m\.factory: no_such_module:f cannot be imported"),
    ],
)
def test_what_cannot_be_is_refused_with_the_place(spec: dict[str, Any], examples: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        describe(section(spec), examples, "m")
    assert len(str(caught.value).splitlines()) == 1


def test_sizes_that_the_recipe_repeats_rightly_are_taken() -> None:
    assert describe(section(different(VIT, num_labels=3, image_size=8)), IMAGES, "m")["config"]["image_size"] == 8


def test_describing_draws_no_random_numbers() -> None:
    """It builds the model without memory, so there is nothing to draw them for."""
    torch.manual_seed(3)
    before = torch.get_rng_state()
    describe(section(GPT2), TEXTS, "m")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_factory_gets_what_it_takes_of_the_datas_shape() -> None:
    assert describe(section(factory("small")), IMAGES, "m")["kwargs"] == {"num_labels": 3, "image_size": 8}
    kwargs = describe(section(factory("small", hidden=7, image_size=9)), IMAGES, "m")["kwargs"]
    assert kwargs == {"num_labels": 3, "image_size": 9, "hidden": 7}
    everything = describe(section(factory("anything", more=1)), IMAGES, "m")["kwargs"]
    assert everything == {"num_labels": 3, "image_size": 8, "num_channels": 1, "more": 1}


def test_a_factory_model_is_saved_without_a_config_and_loaded_again(tmp_path: Path) -> None:
    model, description = built(factory("small", hidden=7), IMAGES)
    model.train()(inputs(IMAGES))
    folder = saved(model, description, tmp_path / "model")
    assert sorted(path.name for path in folder.iterdir()) == [WEIGHTS, DESCRIPTION]
    with torch.no_grad():
        assert torch.equal(loaded(folder)(inputs(IMAGES)).logits, model.eval()(inputs(IMAGES)).logits)
    assert parameter_count(folder) == (64 * 7 + 7) + 2 * 7 + (7 * 3 + 3)


def test_a_factory_model_may_tie_weights(tmp_path: Path) -> None:
    model, description = built(factory("Embedded"), TEXTS)
    folder = saved(model, description, tmp_path / "model")
    again = loaded(folder)
    assert again.net.head.weight is again.net.table.weight
    assert torch.equal(again(inputs(TEXTS)).logits, model(inputs(TEXTS)).logits)
    assert parameter_count(folder) == 50 * 4


def test_a_factory_may_look_at_values_while_it_builds(tmp_path: Path) -> None:
    model, description = built(factory("looks_at_values"), IMAGES)
    assert parameter_count(saved(model, description, tmp_path / "model")) == 64 * 3 + 3


def test_a_saved_factory_model_whose_code_is_gone_is_named(tmp_path: Path) -> None:
    model, description = built(factory("small"), IMAGES)
    folder = saved(model, {**description, "factory": "gone_for_good:small"}, tmp_path / "model")
    with pytest.raises(InputError, match=r"gone_for_good:small cannot be imported"):
        loaded(folder)


def vit_weights(hidden: int, inner: int, layers: int, patch: int, size: int) -> int:
    patches = (size // patch) ** 2
    embedding = hidden + (patches + 1) * hidden + (patch**2 * hidden + hidden)
    attention, feed = 4 * (hidden**2 + hidden), hidden * inner + inner + inner * hidden + hidden
    return embedding + layers * (attention + feed + 4 * hidden) + 2 * hidden + 3 * hidden + 3


def vit_flops(hidden: int, inner: int, layers: int, patch: int, size: int) -> int:
    tokens = (size // patch) ** 2 + 1
    layer = 4 * tokens * hidden**2 + 2 * tokens**2 * hidden + 2 * tokens * hidden * inner
    return 2 * ((tokens - 1) * patch**2 * hidden + layers * layer + 3 * hidden)


def gpt2_weights(width: int, layers: int) -> int:
    return 50 * width + 16 * width + layers * (12 * width**2 + 13 * width) + 2 * width


def gpt2_flops(width: int, layers: int) -> int:
    return 2 * (layers * (12 * 16 * width**2 + 2 * 16**2 * width) + 16 * width * 50)


def llama_weights(width: int, inner: int, layers: int) -> int:
    return 2 * 50 * width + layers * (4 * width**2 + 3 * width * inner + 2 * width) + width


def llama_flops(width: int, inner: int, layers: int) -> int:
    return 2 * (layers * (16 * (4 * width**2 + 3 * width * inner) + 2 * 16**2 * width) + 16 * width * 50)


@pytest.mark.parametrize(
    ("spec", "examples", "weights", "flops"),
    [
        (VIT, IMAGES, vit_weights(8, 12, 2, 4, 8), vit_flops(8, 12, 2, 4, 8)),
        (GPT2, TEXTS, gpt2_weights(8, 2), gpt2_flops(8, 2)),
        (LLAMA, TEXTS, llama_weights(8, 12, 2), llama_flops(8, 12, 2)),
        (factory("small", hidden=7), IMAGES, 64 * 7 + 7 + 14 + 21 + 3, 2 * (64 * 7 + 7 * 3)),
    ],
    ids=["vit", "gpt2", "llama", "factory"],
)
def test_weights_and_operations_are_counted(
    spec: dict[str, Any], examples: dict[str, Any], weights: int, flops: int, tmp_path: Path
) -> None:
    model, description = built(spec, examples)
    folder = saved(model, description, tmp_path / "model")
    assert parameter_count(folder) == weights
    for count in (1, 4):
        assert flops_per_example(model.eval(), inputs(examples, count)) == pytest.approx(flops, rel=0.01)


def test_size_is_that_of_the_weights_on_disk(tmp_path: Path) -> None:
    model, description = built(GPT2, TEXTS)
    folder = saved(model, description, tmp_path / "model")
    with (folder / WEIGHTS).open("rb") as file:
        (header,) = struct.unpack("<Q", file.read(8))
    assert weight_bytes(folder) == 8 + header + 4 * gpt2_weights(8, 2)


def test_a_pretrained_vocabulary_that_is_wider_than_the_tokenizers_is_cut() -> None:
    wide, _ = built(LLAMA, {**TEXTS, "vocab_size": 64})
    model = task_model(wide.net, {"task": "causal-lm", "vocab_size": 50})
    assert torch.equal(model(inputs(TEXTS)).logits, wide(inputs(TEXTS)).logits[..., :50])


def test_the_normalisation_is_no_part_of_the_weights() -> None:
    model, _ = built(VIT, IMAGES)
    assert not any(name in ("mean", "std") for name in model.state_dict())
    assert functional_call(model.eval(), model.state_dict(), inputs(IMAGES)).logits.shape == (4, 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", r"m\.factory: .*:number returned int, not a torch\.nn\.Module"),
        ("lazy", r"returned lazy modules; give"),
    ],
)
def test_a_factory_returns_a_module_that_knows_its_sizes(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_model(describe(section(factory(name)), IMAGES, "m"), "m")


def test_an_architecture_that_was_meant_is_named() -> None:
    with pytest.raises(InputError, match=r"m\.type: transformers has no architecture 'vitt'; did you mean vit\?"):
        describe(section({"type": "vitt", "config": {}}), IMAGES, "m")
