"""The start of a training from layers of a teacher (Sanh et al. 2019, DistilBERT): the tensor that gives each weight.

The blocks of both models are the children of an nn.ModuleList of the same name. A block gets the tensors of one of the
teacher's blocks, and everything outside blocks those of the same name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from torch import nn

from understudy.errors import InputError
from understudy.models.build import empty_model, tied_weights
from understudy.models.facts import Description
from understudy.models.layers import chosen_layers
from understudy.models.weights import opened
from understudy.parallel.blocks import needed_blocks
from understudy.recipe import SavedLayers, Start
from understudy.recipe.roles import section_of

Shape = tuple[int, ...]


def saved_shapes(model: nn.Module) -> dict[str, Shape]:
    """The shapes of the tensors that a model is saved as, by name; tied weights once."""
    ties = {name.removeprefix("net.") for name in tied_weights(model)}
    state = model.get_submodule("net").state_dict()
    return {name: tuple(tensor.shape) for name, tensor in state.items() if name not in ties}


def check_later_starts(starts: Mapping[str, Start], descriptions: Mapping[str, Description]) -> None:
    """Check that models fit the layers that they start from, before their teacher is trained.

    A teacher without a description here is pretrained; its own weights are compared when they are read.

    Args:
        starts: the recipe's sections, by the path of the learner.
        descriptions: of models, by their path in the recipe.

    Raises:
        InputError: as layer_sources().
    """
    for learner, start in starts.items():
        path, teacher_path = f"{learner}.model", section_of(start.teacher or "")
        if teacher_path in descriptions:
            shapes = saved_shapes(empty_model(descriptions[teacher_path], teacher_path))
            layer_sources(empty_model(descriptions[path], path), shapes, start, learner)


def start_sources(model: nn.Module, saved: SavedLayers, learner: str) -> dict[str, str]:
    """As layer_sources(), for a saved teacher."""
    with opened(Path(saved.folder)) as weights:
        shapes = {name: tuple(shape) for name, (shape, _) in weights.headers.items()}
    return layer_sources(model, shapes, saved.start, learner)


def layer_sources(model: nn.Module, teacher_shapes: Mapping[str, Shape], start: Start, learner: str) -> dict[str, str]:
    """The name of the teacher's tensor that gives each of a model's tensors its values, by the latter's name.

    Args:
        model: whole, with memory or without.
        teacher_shapes: the shapes of the teacher's tensors, by name.
        start: the recipe's section.
        learner: the learner's path in the recipe, for errors.

    Raises:
        InputError: the teacher lacks a layer, or one of the models has a tensor that does not fit.
    """
    assert start.teacher
    shapes, teacher, path = saved_shapes(model), start.teacher, f"{learner}.start"
    group = _group(model, path)
    block = re.compile(rf"{re.escape(group)}\.([0-9]+)\.(.+)")
    depth, teacher_depth = (_depth(names, block) for names in (shapes, teacher_shapes))
    if not teacher_depth:
        reason = f"the model has its layers in {group}, and {teacher} has none there"
        raise InputError(f"{path}: {reason}; {_fix(learner, teacher)}")
    layers = chosen_layers(start.layers, depth, teacher_depth, f"{path}.layers", teacher)

    def source(name: str) -> str:
        if match := block.fullmatch(name):
            return f"{group}.{layers[int(match[1])] - 1}.{match[2]}"
        return name

    sources = {name: source(name) for name in shapes}
    used = [name for name in teacher_shapes if not (match := block.fullmatch(name)) or int(match[1]) + 1 in layers]
    if misfit := next(_misfits(shapes, teacher_shapes, sources, used, teacher), None):
        raise InputError(f"{path}: {misfit}; {_fix(learner, teacher)}")
    return sources


def _group(model: nn.Module, path: str) -> str:
    """The name of the nn.ModuleList with the model's blocks."""
    net = model.get_submodule("net")
    first = needed_blocks(net, path, "remove it")[0]
    names: dict[nn.Module, str] = {module: name for name, module in net.named_modules()}
    return names[first].rpartition(".")[0]


def _depth(names: Iterable[str], block: re.Pattern[str]) -> int:
    """The number of blocks among tensors with these names."""
    return max((int(match[1]) + 1 for name in names if (match := block.fullmatch(name))), default=0)


def _misfits(
    shapes: Mapping[str, Shape],
    teacher_shapes: Mapping[str, Shape],
    sources: Mapping[str, str],
    used: list[str],
    teacher: str,
) -> Iterator[str]:
    """The tensors that do not fit in two models, in their order, each with the reason."""
    for name, shape in shapes.items():
        source = sources[name]
        if source not in teacher_shapes:
            yield f"{name} has the shape {_text(shape)}, and {teacher} has no {source}"
        elif teacher_shapes[source] != shape:
            yield f"{name} has the shape {_text(shape)}, and {source} of {teacher} has {_text(teacher_shapes[source])}"
    used_sources = set(sources.values())
    for name in used:
        if name not in used_sources:
            yield f"{name} of {teacher} has the shape {_text(teacher_shapes[name])}, and the model has no such tensor"


def _text(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "of one number"


def _fix(learner: str, teacher: str) -> str:
    return f"give {learner}.model the type and sizes of {teacher}, all but the number of layers, or remove start"
