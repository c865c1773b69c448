"""A training that starts from layers of a teacher: the weights are the teacher's bit for bit under each strategy."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.ranks.models.test_initial import CPU, description, drawn
from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_ranks
from understudy.errors import InputError
from understudy.models.build import build_model, empty_model, tied_weights
from understudy.models.facts import WEIGHTS
from understudy.models.files import read_weights, save_model
from understudy.recipe import SavedLayers, Start
from understudy.train.layers import start_sources

BLOCKS = {
    "llama": "model.layers",
    "tied": "model.layers",
    "gpt2": "transformer.h",
    "bert": "bert.encoder.layer",
    "mamba": "backbone.layers",
    "vit": "vit.layers",
    "dinov2": "dinov2.encoder.layer",
}
"""Where each architecture has its blocks."""
STILL = {
    "steps": 1,
    "optimizer": {"name": "sgd", "learning_rate": 1e-300, "momentum": 0.0, "weight_decay": 0.0},
    "schedule": {"warmup": 0},
}
"""A training whose only step changes no bit."""


def copied(state: dict[str, Tensor], blocks: str, layers: list[int]) -> dict[str, Tensor]:
    """A teacher's state with only the chosen blocks, counted from 0, renumbered, as a script would do."""
    outside = {name: tensor for name, tensor in state.items() if not name.startswith(f"{blocks}.")}
    for number, layer in enumerate(layers):
        prefix = f"{blocks}.{layer}."
        outside |= {
            f"{blocks}.{number}.{name.removeprefix(prefix)}": tensor
            for name, tensor in state.items()
            if name.startswith(prefix)
        }
    return outside


def of_depth(name: str, depth: int) -> dict[str, Any]:
    """The change of a configuration that gives it so many layers."""
    return {"n_layer" if name == "gpt2" else "num_hidden_layers": depth}


def described(name: str, depth: int) -> Any:
    found: Any = description(name)
    return {**found, "config": {**found["config"], **of_depth(name, depth)}}


def saved(folder: Path, name: str, depth: int) -> Path:
    """A saved model of an architecture, with random weights."""
    folder.mkdir()
    model = drawn(name, 3, **of_depth(name, depth))
    ties = tied_weights(model)
    state = {key: tensor for key, tensor in model.state_dict().items() if key not in ties}
    save_model(folder, state, described(name, depth))
    return folder


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(
    ("layers", "depth", "kept_layers"),
    [("uniform", 2, [1, 3]), ("uniform", 3, [1, 2, 3]), ("last", 3, [1, 2, 3]), ("last", 1, [3]), ((4, 1), 2, [3, 0])],
)
def test_each_tensor_is_that_of_the_teachers_layer(
    tmp_path: Path, name: str, layers: Any, depth: int, kept_layers: list[int]
) -> None:
    folder = saved(tmp_path / "teacher", name, 4)
    student = described(name, depth)
    model = empty_model(student)
    sources = start_sources(model, SavedLayers(str(folder), Start(teacher="t", layers=layers)), "student")
    read_weights(model, folder, CPU, sources=sources)
    built = build_model(student)
    expected = built.get_submodule("net")
    state = copied(load_file(folder / WEIGHTS), BLOCKS[name], kept_layers)
    missing, unexpected = expected.load_state_dict(state, strict=False)
    assert (set(missing), unexpected) == ({tie.removeprefix("net.") for tie in tied_weights(built)}, [])
    tensors = {**dict(expected.named_parameters()), **dict(expected.named_buffers())}
    net = model.get_submodule("net")
    loaded = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[key], tensor) for key, tensor in tensors.items())


class Stack(nn.Module):
    """Blocks with buffers, which are part of the state."""

    def __init__(self, num_labels: int, depth: int, width: int = 8, bias: bool = True) -> None:
        super().__init__()
        self.first = nn.Linear(64, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width, bias=bias), nn.BatchNorm1d(width)) for _ in range(depth)
        )
        self.last = nn.Linear(width, num_labels)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images.flatten(1))
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.last(hidden)
        return logits


class Plain(nn.Module):
    """A model without blocks."""

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, num_labels))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


def stack(depth: int, **changes: Any) -> dict[str, Any]:
    return {"factory": f"{__name__}:Stack", "kwargs": {"depth": depth, **changes}}


MODELS = {"images": jobs.VIT, "texts": jobs.LLAMA, "factory": stack(2)}
DEEPER: dict[str, dict[str, Any]] = {
    "images": {**jobs.VIT, "config": {**jobs.VIT["config"], "num_hidden_layers": 4}},
    "texts": {**jobs.LLAMA, "config": {**jobs.LLAMA["config"], "num_hidden_layers": 4}},
    "factory": stack(4),
}
LISTS = {"images": "vit.layers", "texts": "model.layers", "factory": "blocks"}


@pytest.fixture
def examples(request: pytest.FixtureRequest, task: str) -> Path:
    folder: Path = request.getfixturevalue("text_examples" if task == "texts" else "image_examples")
    return folder


@pytest.mark.parametrize(
    ("task", "strategy", "processes", "settings"),
    tiers(
        [
            ("texts", "single", 1, {}),
            ("images", "ddp", 2, {}),
            ("texts", "fsdp", 2, {}),
            ("texts", "tp", 2, {}),
            ("texts", "pp", 2, {"gradient_accumulation_steps": 2}),
            ("factory", "fsdp", 2, {}),
        ],
        [
            ("texts", "zero2", 2, {}),
            ("images", "single", 1, {"activation_checkpointing": "full"}),
            ("texts", {"dp_shard": 2, "pp": 2}, 4, {"gradient_accumulation_steps": 2}),
            ("texts", {"dp_shard": 2, "tp": 2}, 4, {}),
            ("factory", "ddp", 2, {}),
        ],
    ),
)
def test_each_strategy_starts_from_the_same_bits(
    ranks: Any, tmp_path: Path, task: str, examples: Path, strategy: Any, processes: int, settings: dict[str, Any]
) -> None:
    teacher = jobs.spec(tmp_path / "teacher", examples, DEEPER[task])
    ranks.run(1, train_ranks, teacher)
    job = jobs.spec(
        tmp_path / "student",
        examples,
        MODELS[task],
        processes,
        train={**STILL, "strategy": strategy, **settings},
        start={"folder": str(teacher.output), "start": {"teacher": "teacher", "layers": "uniform"}},
        seed=2,
    )
    ranks.run(processes, train_ranks, job)
    state = copied(load_file(teacher.output / WEIGHTS), LISTS[task], [1, 3])
    tensors = {key: tensor for file in job.output.glob("*.safetensors") for key, tensor in load_file(file).items()}
    assert tensors.keys() == state.keys()
    moving = re.compile(r".*running_(mean|var)|.*num_batches_tracked")  # the step's batch counts in them
    assert all(torch.equal(tensors[key], tensor) for key, tensor in state.items() if not moving.fullmatch(key))


FIX = "give student.model the type and sizes of teacher, all but the number of layers, or remove start"


@pytest.mark.parametrize(
    ("model", "teacher", "layers", "message"),
    [
        (
            stack(2),
            stack(4, width=16),
            "uniform",
            f"student.start: first.weight has the shape 8 x 64, and first.weight of teacher has 16 x 64; {FIX}",
        ),
        (
            stack(2),
            stack(4, bias=False),
            "last",
            f"student.start: blocks.0.0.bias has the shape 8, and teacher has no blocks.2.0.bias; {FIX}",
        ),
        (
            stack(2, bias=False),
            stack(4),
            (1, 3),
            f"student.start: blocks.0.0.bias of teacher has the shape 8, and the model has no such tensor; {FIX}",
        ),
        (
            jobs.VIT,
            stack(4),
            "uniform",
            f"student.start: the model has its layers in vit.layers, and teacher has none there; {FIX}",
        ),
        (
            {"factory": f"{__name__}:Plain"},
            stack(4),
            "uniform",
            "student.start: the model has no repeated blocks (an nn.ModuleList); remove it",
        ),
        (
            stack(2),
            stack(4),
            (1, 7),
            "student.start.layers: there is no layer 7 in teacher, which has 4; name 1 to 4",
        ),
        (
            stack(2),
            stack(4),
            (1,),
            "student.start.layers: names 1 layers, and the model has 2; name a layer of teacher for each",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_the_teacher_is_trained(
    ranks: Any,
    tmp_path: Path,
    image_examples: Path,
    model: dict[str, Any],
    teacher: dict[str, Any],
    layers: Any,
    message: str,
) -> None:
    start = {"teacher": "teacher", "layers": layers}
    later = {"later_models": {"student.model": model}, "later_starts": {"student": start}}
    job = jobs.spec(tmp_path / "teacher", image_examples, teacher, **later)
    with pytest.raises(AssertionError, match=re.escape(f"InputError: {message}\n")):
        ranks.run(1, train_ranks, job)
    assert not job.output.exists()


def test_a_teachers_own_files_are_compared_before_the_first_step(
    ranks: Any, tmp_path: Path, image_examples: Path
) -> None:
    """A pretrained teacher is known by its files alone."""
    teacher = jobs.spec(tmp_path / "teacher", image_examples, stack(4, width=16))
    ranks.run(1, train_ranks, teacher)
    start = {"folder": str(teacher.output), "start": {"teacher": "teacher"}}
    job = jobs.spec(tmp_path / "student", image_examples, stack(2), role="control", start=start)
    message = "student.start: first.weight has the shape 8 x 64, and first.weight of teacher has 16 x 64"
    with pytest.raises(AssertionError, match=message):
        ranks.run(1, train_ranks, job)
    assert not job.output.exists()


def test_one_tied_weight_does_not_fit_two(tmp_path: Path) -> None:
    folder = saved(tmp_path / "teacher", "llama", 2)
    message = "lm_head.weight of t has the shape 21 x 16, and the model has no such tensor"
    with pytest.raises(InputError, match=message):
        start_sources(empty_model(description("tied")), SavedLayers(str(folder), Start(teacher="t")), "student")
    folder = saved(tmp_path / "tied", "tied", 2)
    message = "lm_head.weight has the shape 21 x 16, and t has no lm_head.weight"
    with pytest.raises(InputError, match=message):
        start_sources(empty_model(description("llama")), SavedLayers(str(folder), Start(teacher="t")), "student")
