"""Shallow models' traces, continued to a deep model's, beside the deep model's own."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.jobs.specs import training_settings
from understudy.models.describe import describe
from understudy.models.facts import Facts
from understudy.plan.depth import Depth, deep_traces, depth, depths
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.planned import Planned
from understudy.plan.trace import traces
from understudy.recipe import ArchitectureModel, Degrees, FactoryModel, Train
from understudy.recipe.objectives import without_teacher
from understudy.recipe.tasks import default_objectives

TEXT: Facts = {"task": "causal-lm", "vocab_size": 300, "eos_id": 0, "sequence_length": 32}
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4}


def llama(layers: int) -> Any:
    config = {**SIZES, "num_hidden_layers": layers, "max_position_embeddings": 32}
    return describe(ArchitectureModel(type="llama", config=config), TEXT, "student.model")


def gpt2(layers: int) -> Any:
    config = {"n_embd": 64, "n_layer": layers, "n_head": 4, "n_positions": 32}
    return describe(ArchitectureModel(type="gpt2", config=config), TEXT, "student.model")


def lookup() -> nn.Module:
    """A language model without blocks."""
    return nn.Sequential(nn.Embedding(300, 8), nn.Linear(8, 300))


def planned(model: Any, teacher: Any = None, **train: Any) -> Planned:
    values = {"steps": 1, "batch_size": 16, "gradient_accumulation_steps": 4, **train}
    objectives = without_teacher() if teacher is None else default_objectives("causal-lm")
    teachers = {} if teacher is None else {"teacher": teacher}
    settings = training_settings(Train(**values), objectives=objectives)
    return Planned(settings, model, teachers, PlaceholderExamples(TEXT, 64))


@pytest.mark.parametrize(
    ("model", "teacher", "mesh_degrees", "train", "error"),
    [
        (llama(9), None, Degrees(), {}, 0),
        (gpt2(8), None, Degrees(dp_replicate=2), {}, 0),
        (llama(7), llama(10), Degrees(dp_shard=2), {"activation_checkpointing": "full"}, 0),
        (llama(6), llama(8), Degrees(dp_shard=2, tp=2), {"activation_checkpointing": "selective"}, 0),
        pytest.param(
            *(llama(9), llama(6), Degrees(pp=2, dp_shard=2), {"activation_checkpointing": "full"}, 0),
            marks=pytest.mark.full,
        ),
        pytest.param(  # a rank's two stages have five and six blocks
            *(llama(21), None, Degrees(pp=2), {"pipeline": {"schedule": "Interleaved1F1B"}}, 0.02),
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_deep_trace_is_extrapolated_from_few_blocks(
    model: Any, teacher: Any, mesh_degrees: Degrees, train: dict[str, Any], error: float
) -> None:
    job = planned(model, teacher, **train)
    full_traces = traces(job, mesh_degrees, "cpu", torch.float32)
    estimates = deep_traces(job, mesh_degrees, depths(job), "cpu", torch.float32)
    for estimated, measured in zip(estimates, full_traces, strict=True):
        assert estimated.peak.bytes == pytest.approx(measured.peak.bytes, rel=error, abs=1)
        assert (estimated.resident, estimated.flops) == pytest.approx(
            (measured.resident, measured.flops), rel=error, abs=1
        )
        assert estimated.state == pytest.approx(measured.state, rel=error, abs=1)
        # Of each weight a number is summed to find the norm of all gradients, and for no block.
        assert estimated.traffic == pytest.approx(measured.traffic, rel=error, abs=256)
        assert estimated.peak.phase == measured.peak.phase


def test_shallow_models_alone_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    depths_traced = []

    def watched(job: Planned, *args: Any, **kwargs: Any) -> Any:
        depths_traced.append(job.model["config"]["num_hidden_layers"])  # type: ignore[typeddict-item]
        return traces(job, *args, **kwargs)

    monkeypatch.setattr("understudy.plan.depth.traces", watched)
    job = planned(llama(60))
    deep_traces(job, Degrees(), depths(job), "cpu", torch.float32)
    assert depths_traced == [4]


def test_a_model_of_few_blocks_is_traced_as_it_is() -> None:
    job = planned(llama(4))
    assert deep_traces(job, Degrees(), depths(job), "cpu", torch.float32) == traces(
        job, Degrees(), "cpu", torch.float32
    )


def test_a_depth_is_found_by_the_name_that_the_architecture_has_for_it() -> None:
    assert depth(gpt2(5), "student.model") == Depth(5, "n_layer")
    assert depth(llama(5), "student.model") == Depth(5, "num_hidden_layers")


def test_a_teacher_without_blocks_is_traced_as_it_is_beside_a_deep_student() -> None:
    teacher = {**TEXT, "kind": "factory", "factory": f"{__name__}:lookup", "kwargs": {}}
    job = planned(llama(7), teacher)
    (estimated,) = deep_traces(job, Degrees(), depths(job), "cpu", torch.float32)
    (full,) = traces(job, Degrees(), "cpu", torch.float32)
    assert (estimated.peak.bytes, estimated.flops) == (full.peak.bytes, full.flops)


def test_blocks_that_differ_have_no_depth() -> None:
    config = {**SIZES, "num_hidden_layers": 4, "decoder_sparse_step": 2, "num_experts": 4, "moe_intermediate_size": 16}
    mixed = describe(ArchitectureModel(type="qwen2_moe", config=config), TEXT, "student.model")
    assert depth(mixed, "student.model") is None


def test_layers_of_several_types_have_no_depth() -> None:
    config = {**SIZES, "num_hidden_layers": 6, "head_dim": 16}
    windows = describe(ArchitectureModel(type="gemma3_text", config=config), TEXT, "student.model")
    assert depth(windows, "student.model") is None


@pytest.mark.parametrize(
    ("modules", "has_depth"),
    [(["q_proj"], True), (["*.mlp.*_proj"], True), (["layers.5.*.q_proj"], False), (["[0-3].mlp"], False)],
)
def test_blocks_of_which_some_are_trained_are_all_traced(modules: list[str], has_depth: bool) -> None:
    student_depth, _ = depths(planned(llama(8), lora={"modules": modules}))
    assert (student_depth is not None) is has_depth


def test_code_of_ones_own_has_no_depth() -> None:
    model = FactoryModel(factory="tests.unit.models.small:text_network", kwargs={})
    assert depth({**TEXT, "kind": "factory", "factory": model.factory, "kwargs": {}}, "student.model") is None  # type: ignore[arg-type]
