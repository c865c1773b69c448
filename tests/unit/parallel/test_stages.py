"""A model in stages: together they are the model, and each holds its own part alone."""

import copy
import gc
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from tests.unit.models.small import network
from understudy.models.tasks import TextModel
from understudy.parallel.blocks import blocks
from understudy.parallel.layout import boundaries, layout
from understudy.parallel.savers import Savers
from understudy.parallel.stages import MicroBatch, Stage, cut, without_unused

TOKENS = torch.randint(50, (3, 6), generator=torch.Generator().manual_seed(0))
KINDS = ["llama", "gpt2", "bert", "gemma2", "qwen2"]


def through(model: TextModel, ranks: list[list[int]], stages: int) -> tuple[Tensor, list[set[str]]]:
    """The output of the stages of all ranks together, and the names of each rank's parameters."""
    parts = boundaries(model_layout := layout(model, TOKENS[:2], "train"), stages, "train")
    stages_by_number, parameter_names = {}, []
    for rank_stages in ranks:
        part = cut(copy.deepcopy(model), model_layout, parts, rank_stages)
        for number, (staged, passing) in zip(rank_stages, part.stages, strict=True):
            stages_by_number[number] = Stage(staged, passing, part.tied, torch.float32, is_last=number == stages - 1)
        tied_alone = without_unused(
            part.rank_model, part.tied, [stages_by_number[number].model for number in rank_stages]
        )
        parameter_names.append({name for name, _ in tied_alone.named_parameters()})
    hidden: list[Tensor] = []
    for number in range(stages):
        stages_by_number[number].parts = [MicroBatch(TOKENS, {}, lambda outputs: outputs.states, nullcontext)]
        hidden = [stages_by_number[number](*hidden, part=0)]
    return hidden[0], parameter_names


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_stages_after_one_another_are_the_model(kind: str, tied: bool) -> None:
    model = TextModel(network(kind, tie_word_embeddings=tied), 64)
    with torch.no_grad():
        output, parameter_names = through(model, [[0], [1], [2]], 3)
        assert torch.equal(output, model(TOKENS).logits)
    everything = {name for name, _ in model.named_parameters()}
    assert set().union(*parameter_names) == everything
    shared = (
        (parameter_names[0] & parameter_names[1])
        | (parameter_names[1] & parameter_names[2])
        | (parameter_names[0] & parameter_names[2])
    )
    assert len(shared) == (1 if tied else 0)
    assert all(len(names) < 0.6 * len(everything) for names in parameter_names)


def test_a_rank_with_the_first_and_the_last_stage_holds_a_tied_weight_once() -> None:
    model = TextModel(network("llama", tie_word_embeddings=True), 64)
    with torch.no_grad():
        output, parameter_names = through(model, [[0, 3], [1, 2]], 4)
        assert torch.equal(output, model(TOKENS).logits)
    assert not parameter_names[0] & parameter_names[1]


@pytest.mark.parametrize("number", [0, 1])
def test_a_stages_blocks_are_found_even_if_its_tied_weight_is_larger(number: int) -> None:
    """fully_shard is around each block, and a tied weight cannot be in two of its groups."""
    model = TextModel(network("llama", tie_word_embeddings=True, vocab_size=4096), 64)
    model_layout = layout(model, TOKENS[:2], "train")
    part = cut(model, model_layout, parts := boundaries(model_layout, 2, "train"), [number])
    stage = Stage(*part.stages[0], part.tied, torch.float32, is_last=number == 1)
    local_blocks = [part.rank_model.get_submodule(model_layout.blocks[block]) for block in parts[number]]
    assert sum(weight.numel() for weight in stage.tied.parameters()) > sum(
        weight.numel() for block in local_blocks for weight in block.parameters()
    )
    assert [block for block in blocks(stage) if list(block.parameters())] == local_blocks


def test_what_is_absent_says_how_it_was_configured() -> None:
    """A model asks its layers of which kind they are, and a stage runs all of its code."""
    model = TextModel(network("gemma2", tie_word_embeddings=False), 64)
    model_layout = layout(model, TOKENS[:2], "train")
    part = cut(model.to("meta"), model_layout, boundaries(model_layout, 2, "train"), [1])
    absent = part.stages[0][0].get_submodule("net.model.layers.0")
    assert absent.self_attn.layer_idx == 0  # type: ignore[union-attr]
    assert not list(absent.parameters())
    with pytest.raises(AttributeError):
        _ = absent.no_such_thing


@pytest.mark.parametrize("savers", [Savers(), Savers("full"), Savers("selective"), Savers(offloaded=True)])
def test_an_absent_module_has_the_types_of_its_weights_and_none_of_their_memory(savers: Savers) -> None:
    model = TextModel(network("llama", tie_word_embeddings=False), 64).bfloat16()
    savers.apply(model, "train", torch.device("cpu"), splits=True)
    block = model.get_submodule("net.model.layers.0")
    block.register_forward_hook(lambda *_, around=block: None)
    model_layout = layout(model, TOKENS[:2], "train")
    weight_reference = weakref.ref(model.get_submodule("net.model.layers.0.mlp.up_proj").weight)
    part = cut(model, model_layout, boundaries(model_layout, 2, "train"), [1])
    del model, block
    gc.collect()
    assert weight_reference() is None
    weight = part.stages[0][0].get_submodule("net.model.layers.0").mlp.up_proj.weight  # type: ignore[union-attr]
    assert (weight.dtype, weight.device.type) == (torch.bfloat16, "meta")
