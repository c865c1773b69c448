from typing import Any

import pytest
import torch
from torch import nn

from understudy.errors import InputError
from understudy.parallel.tensor import has_plan, tensor_parallel


def llama(**changes: Any) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    config: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 20,
    }
    settings = AutoConfig.for_model("llama", **config, **changes)
    return nn.ModuleDict({"net": AutoModelForCausalLM.from_config(settings)})


def gpt() -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("gpt2", n_embd=16, n_layer=1, n_head=2, vocab_size=20)
    config.bos_token_id = config.eos_token_id = 1
    return nn.ModuleDict({"net": AutoModelForCausalLM.from_config(config)})


def mixtral() -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    size = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "num_local_experts": 2}
    config = AutoConfig.for_model("mixtral", **size, num_attention_heads=2, num_key_value_heads=2, vocab_size=20)
    return nn.ModuleDict({"net": AutoModelForCausalLM.from_config(config)})


def split(kind: str, plan: dict[str, str]) -> dict[str, tuple[int, ...]]:
    """Each parameter's part on this rank, and whether two names are still one tensor."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo")
    try:
        model = {"llama": llama, "tied": lambda: llama(tie_word_embeddings=True), "gpt": gpt, "mixtral": mixtral}[
            kind
        ]()
        tensor_parallel(model, init_device_mesh("cpu", (dist.get_world_size(),)), plan, "student.train")
        net: Any = model["net"]  # type: ignore[index]
        shapes = {name: tuple(_part(parameter).shape) for name, parameter in net.named_parameters()}
        if kind != "gpt":
            assert (net.lm_head.weight is net.model.embed_tokens.weight) == (kind == "tied")
        return shapes
    finally:
        dist.destroy_process_group()


def _part(parameter: nn.Parameter) -> torch.Tensor:
    from torch.distributed.tensor import DTensor

    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


@pytest.mark.parametrize("kind", ["llama", "tied"])
def test_a_rank_keeps_its_part_of_each_layer(ranks: Any, kind: str) -> None:
    full_shapes = {name: tuple(parameter.shape) for name, parameter in llama()["net"].named_parameters()}  # type: ignore[index]
    for shapes in ranks.run(2, split, kind, {}):
        assert shapes["model.layers.1.self_attn.q_proj.weight"] == (16, 32)
        assert shapes["model.layers.1.mlp.down_proj.weight"] == (32, 24)
        assert shapes["model.embed_tokens.weight"] == (10, 32)
        assert ("lm_head.weight" in shapes) is (kind == "llama")
        assert all(part == full_shapes[name] for name, part in shapes.items() if "norm" in name)


def test_a_recipes_plan_goes_before_the_architectures(ranks: Any) -> None:
    plan = {"model.layers.*.mlp.gate_proj": "replicate"}
    for shapes in ranks.run(2, split, "llama", plan):
        assert shapes["model.layers.0.mlp.gate_proj.weight"] == (48, 32)


def refusal(kind: str, plan: dict[str, str]) -> str:
    with pytest.raises(InputError) as caught:
        split(kind, plan)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "plan", "parts", "message"),
    [
        ("gpt", {}, 2, "student.train.strategy: GPT2LMHeadModel has no plan for tensor parallel; give one as"),
        ("llama", {}, 4, "student.train.strategy: num_key_value_heads is 2 and cannot be divided over 4 processes"),
        ("llama", {"model.layer.*": "colwise"}, 2, "student.train.tensor_plan.model.layer.*: LlamaForCausalLM has no"),
        (
            "mixtral",
            {},
            2,
            "student.train.strategy: tp would split model.layers.0.mlp.experts.gate_up_proj, in which weights",
        ),
        ("llama", {"lm_head": "sideways"}, 2, "student.train.tensor_plan.lm_head: sideways is not a style of"),
    ],
)
def test_what_cannot_be_split_is_refused(ranks: Any, kind: str, plan: dict[str, str], parts: int, message: str) -> None:
    for text in ranks.run(parts, refusal, kind, plan):
        assert text.startswith(message)


def test_an_architecture_may_have_no_plan() -> None:
    assert has_plan(llama())
    assert not has_plan(gpt())
    assert not has_plan(nn.ModuleDict({"net": nn.Linear(2, 2)}))
