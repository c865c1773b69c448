"""Construction of models from their descriptions."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from understudy.errors import InputError
from understudy.models import remote_code
from understudy.models.facts import Description
from understudy.models.tasks import task_model
from understudy.recipe import TaskName
from understudy.recipe.tasks import load


def build_model(description: Description, section: str = "model") -> nn.Module:
    """A new model with random weights, drawn from torch's global generator."""
    if description["kind"] == "factory":
        net = factory_function(description["factory"], section)(**description["kwargs"])
        _check_module(net, description["factory"], section)
    elif description.get("code"):
        net = remote_code.build(description["config"], description["code"], auto_class(description["task"]))
    else:
        from transformers import AutoConfig

        config = AutoConfig.for_model(**description["config"])
        # Explicitly False: by default transformers prompts at the terminal if a configuration names code of a hub.
        net = auto_class(description["task"]).from_config(config, trust_remote_code=False)
    return task_model(net, description)


def empty_model(description: Description, section: str = "model") -> nn.Module:
    """A new model whose network has no memory yet: on torch's meta device, for materialize().

    Other code than transformers' may compute anything in its constructors, so its networks are built with weights.
    """
    if description["kind"] == "factory" or description.get("code"):
        return build_model(description, section)
    from transformers import AutoConfig

    config = AutoConfig.for_model(**description["config"])
    with torch.device("meta"):
        net = auto_class(description["task"]).from_config(config, trust_remote_code=False)
    return task_model(net, description)


@contextmanager
def probe_model(description: Description, section: str = "model") -> Iterator[nn.Module]:
    """A new model to run and inspect within the context; without memory, if its code is transformers'.

    transformers reads values of tensors on the meta device, but not those of FakeTensors.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    if description["kind"] == "factory" or description.get("code"):
        yield build_model(description, section)
        return
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield uninitialized_model(description, section)


def uninitialized_model(description: Description, section: str = "model") -> nn.Module:
    """A new model without initialised weights: initialisation reads values, which FakeTensors do not have.

    Some networks read values in their constructors (ConvNeXt its drop path rates). They are built on the meta device,
    where these have values.
    """
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, unset_fake_temporarily
    from transformers import PreTrainedModel
    from transformers.initialization import no_init_weights

    def tie(net: PreTrainedModel) -> None:
        net.tie_weights(recompute_mapping=False)

    # transformers ties weights where it initialises them, and no_init_weights() skips both.
    with no_init_weights(), patch.object(PreTrainedModel, "init_weights", tie):
        try:
            model = build_model(description, section)
        except DataDependentOutputException:
            with unset_fake_temporarily():
                model = empty_model(description, section)
            _take_off_meta(model)
    for parameter in model.parameters():
        if isinstance(parameter, FakeTensor):
            parameter.constant = None  # a scalar's value, which would not follow changes of the parameter's type
    return model


def _take_off_meta(model: nn.Module) -> None:
    """Replace a model's tensors by new ones on the CPU; within a FakeTensorMode they are FakeTensors."""
    created: dict[int, Any] = {}
    tables: list[dict[str, Any]] = []
    for module in model.modules():
        tables += [module._parameters, module._buffers]
    for tensors in tables:
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            if id(tensor) not in created:  # otherwise the tensor is tied to an earlier one
                empty = torch.empty_like(tensor, device="cpu")
                is_parameter = isinstance(tensor, nn.Parameter)
                created[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
            tensors[name] = created[id(tensor)]


def is_empty(model: nn.Module) -> bool:
    """Whether a model's network has no memory yet."""
    return any(parameter.is_meta for parameter in model.parameters())


def materialize(model: nn.Module, device: torch.device) -> None:
    """Allocate memory for an empty model's tensors, on each rank for its shards; the contents are undefined."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    model.get_submodule("net").to_empty(device=device)
    for first, *aliases in names.values():  # to_empty() has split tied tensors
        for alias in aliases:
            owner, _, attribute = alias.rpartition(".")
            setattr(model.get_submodule(owner), attribute, model.get_parameter(first))
    model.to(device)  # also moves the wrapper's buffers, and lets fully_shard look up the new tensors


def move_buffers(model: nn.Module, device: torch.device) -> None:
    """Move a model's buffers to a device, wherever its parameters are."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.to(device)


def factory_function(factory: str, section: str) -> Callable[..., nn.Module]:
    """The function that a recipe names as package.module:function.

    Raises:
        InputError: it cannot be imported.
    """
    module, _, name = factory.partition(":")
    try:
        function: Callable[..., nn.Module] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise InputError(
            f"{section}.factory: {factory} cannot be imported ({error}). understudy searches the recipe's folder, the "
            "current folder, PYTHONPATH and this environment."
        ) from error
    return function


def _check_module(net: object, factory: str, section: str) -> None:
    if not isinstance(net, nn.Module):
        raise InputError(f"{section}.factory: {factory} returned {type(net).__name__}, not a torch.nn.Module")
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in net.parameters()):
        raise InputError(
            f"{section}.factory: {factory} returned lazy modules; give their sizes, which follow from the data"
        )


def auto_class(task: TaskName) -> Any:
    """The transformers class that builds a task's models from their configuration."""
    import transformers

    return getattr(transformers, load(task).AUTO_MODEL)


def tied_weights(model: nn.Module) -> set[str]:
    """The second and further names of tied weights, parameters with several names; each is saved once."""
    ids, names = set[int](), set[str]()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        (names.add(name) if id(parameter) in ids else ids.add(id(parameter)))
    return names
