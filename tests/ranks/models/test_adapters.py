"""Adapters: against peft's, under every strategy that may have them, through checkpoints, and merged at the end."""

import json
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_alone, train_ranks
from tests.ranks.train.test_parity import assert_same_training, weights
from tests.ranks.train.test_resume import assert_goes_on
from tests.unit.models.small import network
from tests.unit.models.test_rounded import fill
from understudy.errors import InputError
from understudy.models.adapters import Adapter, add_adapters, draw_adapters, merged
from understudy.models.four_bits import FourBits
from understudy.models.tasks import TextModel
from understudy.models.weights import LazyTensor
from understudy.recipe import Lora

ATTENTION = ("q_proj", "v_proj")
TOKENS = torch.arange(24).reshape(2, 12) % 64


def adapted(kind: str, **settings: Any) -> TextModel:
    """A small language model with adapters that add something."""
    model = TextModel(network(kind), 64)
    add_adapters(model, Lora(**{"rank": 3, "alpha": 5.0, **settings}), "train")
    draw_adapters(model, 1)
    for module in model.modules():
        if isinstance(module, Adapter):
            nn.init.normal_(module.b, std=0.1, generator=torch.Generator().manual_seed(7))
    return model


@pytest.mark.parametrize(
    ("kind", "modules"),
    [("llama", [*ATTENTION, "down_proj", "lm_head"]), ("gpt2", ["c_attn", "mlp.c_fc"])],
)
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it
def test_they_are_those_of_peft(kind: str, modules: list[str]) -> None:
    """The same outputs, gradients, and merged weights."""
    import peft

    ours = adapted(kind, modules=modules)
    names = [name for name, module in ours.net.named_modules() if "lora" in dict(module.named_children())]
    config = peft.LoraConfig(r=3, lora_alpha=5, target_modules=names, fan_in_fan_out=kind == "gpt2")
    theirs = peft.get_peft_model(network(kind), config)
    pairs = []
    for name in names:
        layer, adapter = theirs.get_submodule(f"base_model.model.{name}"), ours.net.get_submodule(f"{name}.lora")
        for mine, reference in ((adapter.a, layer.lora_A.default.weight), (adapter.b, layer.lora_B.default.weight)):
            reference.data.copy_(mine.data)
            pairs.append((mine, reference))
    actual, expected = ours(TOKENS).logits, theirs(TOKENS).logits
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    for logits in (actual, expected):
        logits.square().mean().backward()
    for mine, reference in pairs:
        torch.testing.assert_close(mine.grad, reference.grad, rtol=1e-4, atol=1e-7)
    assert {id(parameter) for parameter in ours.parameters() if parameter.requires_grad} == {
        id(mine) for mine, _ in pairs
    }
    merged_weights = theirs.merge_and_unload().state_dict()
    for name, tensor in merged(ours).items():
        torch.testing.assert_close(tensor, merged_weights[name.removeprefix("net.")], rtol=1e-5, atol=1e-7)


def test_merged_weights_say_the_same_under_the_names_that_there_were() -> None:
    model = adapted("llama", modules=ATTENTION)
    plain = TextModel(network("llama"), 64)
    assert not torch.allclose(plain(TOKENS).logits, model(TOKENS).logits, atol=1e-4)
    expected = model(TOKENS).logits
    plain.load_state_dict(merged(deepcopy(model)))
    torch.testing.assert_close(plain(TOKENS).logits, expected, rtol=1e-5, atol=1e-6)


def test_at_first_nothing_is_added() -> None:
    model = TextModel(network("llama"), 64)
    expected = model(TOKENS).logits
    add_adapters(model, Lora(modules=ATTENTION), "train")
    draw_adapters(model, 1)
    assert torch.equal(model(TOKENS).logits, expected)
    drawn = model.net.get_submodule("model.layers.0.self_attn.q_proj.lora").a
    assert drawn.abs().max() <= 1 / 16**0.5, "as nn.Linear draws: uniform up to 1 over the root of the inputs"
    assert drawn.std() > 0.1


def test_what_is_named_whole_is_trained_too() -> None:
    model = adapted("llama", modules=["layers.0.*.q_proj"], whole=["norm"])
    trained = {name for name, parameter in model.net.named_parameters() if parameter.requires_grad}
    prefix = "model.layers.0.self_attn.q_proj.lora"
    assert trained == {f"{prefix}.a", f"{prefix}.b", "model.norm.weight"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"modules": ["query"]},
            r"train\.lora\.modules: no layer is called query; the layers are .*layers\.\*\.self_attn\.k_",
        ),
        ({"modules": ["norm"]}, r"train\.lora\.modules: no layer is called norm; the layers are lm_head, "),
        (
            {"modules": ATTENTION, "whole": ["score"]},
            r"train\.lora\.whole: no layer is called score; the layers are lm_head, ",
        ),
    ],
)
def test_a_name_of_no_layer_is_refused_with_those_that_there_are(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        adapted("llama", **settings)


def test_a_tied_weight_has_no_adapter() -> None:
    with pytest.raises(InputError, match=r"train\.lora\.modules: the weight of lm_head is another layer's too"):
        adapted("gpt2", modules=["lm_head"])


def test_what_would_change_though_it_is_frozen_is_refused() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model = nn.ModuleDict({"net": net})
    with pytest.raises(
        InputError, match=r"train\.lora: 1 keeps running means and variances, which training would change"
    ):
        add_adapters(model, Lora(modules=("0",)), "train")


@pytest.fixture(scope="module")
def pretrained(ranks: Any, text_examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = jobs.spec(tmp_path_factory.mktemp("pretrained"), text_examples, jobs.LLAMA)
    ranks.run(1, train_ranks, job)
    return job.output


LORA = {"rank": 4, "alpha": 8.0, "modules": ["q_proj", "v_proj", "down_proj"]}
WAYS: list[Any] = [
    pytest.param("ddp", 2, marks=pytest.mark.full),
    ("fsdp", 2),
    pytest.param("zero1", 2, marks=pytest.mark.full),
    pytest.param("zero2", 2, marks=pytest.mark.full),
    pytest.param("hsdp", 4, marks=pytest.mark.full),
    ("pp", 2),
    pytest.param("cp", 2, marks=pytest.mark.full),
    pytest.param({"dp_shard": 2, "pp": 2}, 4, marks=pytest.mark.full),
    pytest.param({"dp_shard": 2, "cp": 2}, 4, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("strategy", "processes"), WAYS)
def test_they_train_as_in_one_process(
    ranks: Any, tmp_path: Path, text_examples: Path, pretrained: Path, strategy: Any, processes: int
) -> None:
    train = {"lora": LORA, "activation_checkpointing": "full"}
    make = partial(jobs.spec, examples=text_examples, model=jobs.LLAMA, initial=str(pretrained))
    spread = trained_as_alone(ranks, make, tmp_path, train, strategy, processes)
    before = weights_of(pretrained)
    changed = {name for name, tensor in weights(spread).items() if not torch.equal(tensor, before[name])}
    assert {name.split(".")[-2] for name in changed} == set(LORA["modules"])


def trained_as_alone(
    ranks: Any, make: Callable[..., jobs.JobSpec], folder: Path, train: dict[str, Any], strategy: Any, processes: int
) -> jobs.JobSpec:
    """A job over several processes that has the weights of a single process."""
    settings = {**train, "gradient_accumulation_steps": 2}
    alone = make(folder / "alone", train={**settings, "activation_checkpointing": "none"})
    spread = make(folder / "spread", processes=processes, train={**settings, "strategy": strategy})
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)
    losses = [point["loss"] for point in json.loads((spread.output / "history.json").read_text())]
    assert losses[-1] < losses[0]
    return spread


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


RESUMED = [
    pytest.param("single", 1, marks=pytest.mark.full),
    pytest.param("ddp", 2, marks=pytest.mark.full),
    ("fsdp", 2),
]


@pytest.mark.parametrize(("strategy", "processes"), RESUMED)
def test_a_job_with_adapters_goes_on_bit_for_bit(
    ranks: Any, tmp_path: Path, text_examples: Path, pretrained: Path, strategy: str, processes: int
) -> None:
    train = {"lora": {**LORA, "dropout": 0.1}, "strategy": strategy, "checkpoint_every": 6}
    job = jobs.spec(tmp_path, text_examples, jobs.LLAMA, processes, train=train, initial=str(pretrained))
    assert_goes_on(ranks, processes, job)


def test_beside_four_bits_they_are_trained_to_what_is_merged() -> None:
    """QLoRA: the finished weights are those that were computed with, and adapters."""
    plain = TextModel(network("llama"), 64)
    model = fill(adapted("llama", modules=[*ATTENTION, "lm_head"], frozen_precision="nf4"), plain)
    quantised_names = {name.rpartition(".")[2] for name, layer in model.named_modules() if isinstance(layer, FourBits)}
    assert quantised_names == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    output = model(TOKENS).logits
    output.square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
    state = {
        name: parameter.compute() if isinstance(parameter, LazyTensor) else parameter
        for name, parameter in merged(model).items()
    }
    assert not torch.allclose(plain(TOKENS).logits, output, atol=1e-4)
    plain.load_state_dict(state)
    torch.testing.assert_close(plain(TOKENS).logits, output, rtol=1e-5, atol=1e-6)


def test_what_is_trained_whole_is_not_in_four_bits() -> None:
    model = adapted("llama", modules=["q_proj"], whole=["up_proj"], frozen_precision="nf4")
    plain = {name for name, layer in model.net.named_modules() if type(layer) is nn.Linear}
    assert plain == {"lm_head"} | {f"model.layers.{number}.mlp.up_proj" for number in range(4)}


def test_each_stage_has_something_to_train(ranks: Any, tmp_path: Path, text_examples: Path, pretrained: Path) -> None:
    train: dict[str, Any] = {"lora": {"modules": ["layers.1.*.q_proj"]}, "strategy": "pp"}
    train["gradient_accumulation_steps"] = 2
    job = jobs.spec(tmp_path / "job", text_examples, jobs.LLAMA, 2, train=train, initial=str(pretrained))
    with pytest.raises(
        AssertionError, match=r"train\.lora\.modules: stage 0 of pp would have no adapter; name layers of"
    ):
        ranks.run(2, train_ranks, job)


@pytest.mark.parametrize(
    ("strategy", "processes"), [("fsdp", 2), ("pp", 2), pytest.param("single", 1, marks=pytest.mark.full)]
)
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it
def test_what_is_kept_apart_is_read_by_peft(
    ranks: Any, tmp_path: Path, text_examples: Path, pretrained: Path, strategy: str, processes: int
) -> None:
    """On the initial model the adapter gives the logits of the finished model, whose layers include it."""
    import peft
    from transformers import AutoModelForCausalLM

    lora = {**LORA, "modules": [*LORA["modules"], "lm_head"]}
    train = {"lora": lora, "strategy": strategy, "gradient_accumulation_steps": 2}
    job = jobs.spec(tmp_path / "job", text_examples, jobs.LLAMA, processes, train=train, initial=str(pretrained))
    ranks.run(processes, train_ranks, job)
    adapter_folder = tmp_path / "adapter"
    adapter_folder.mkdir()
    (adapter_folder / "adapter_config.json").write_bytes((job.output / "lora.json").read_bytes())
    (adapter_folder / "adapter_model.safetensors").write_bytes((job.output / "lora.adapter").read_bytes())
    began = AutoModelForCausalLM.from_pretrained(pretrained)
    with torch.inference_mode():
        before = began(TOKENS).logits
        said = peft.PeftModel.from_pretrained(began, adapter_folder)(TOKENS).logits
        finished = AutoModelForCausalLM.from_pretrained(job.output)(TOKENS).logits
    torch.testing.assert_close(said, finished, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(said, before, atol=1e-3)


FOUR_BITS: list[Any] = [
    pytest.param("ddp", 2, marks=pytest.mark.full),
    ("fsdp", 2),
    pytest.param("cp", 2, marks=pytest.mark.full),
    pytest.param({"dp_shard": 2, "pp": 2}, 4, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("strategy", "processes"), FOUR_BITS)
def test_beside_four_bits_they_train_as_in_one_process_and_go_on_bit_for_bit(
    ranks: Any, tmp_path: Path, text_examples: Path, pretrained: Path, strategy: Any, processes: int
) -> None:
    lora = {**LORA, "frozen_precision": "nf4"}
    train = {"lora": lora, "checkpoint_every": 6, "activation_checkpointing": "selective"}
    make = partial(jobs.spec, examples=text_examples, model=jobs.LLAMA, initial=str(pretrained))
    assert_goes_on(ranks, processes, trained_as_alone(ranks, make, tmp_path, train, strategy, processes))
