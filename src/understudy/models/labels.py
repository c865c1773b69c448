"""Matching of a pretrained classifier's labels with the data's by name, and reordering of its outputs.

Labels are never matched by position: a teacher with permuted outputs would raise no error and train a bad student.
"""

import copy
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.errors import InputError

PREFIX = "LABEL_"
"""transformers' default names of outputs are LABEL_0, LABEL_1, ..."""


def output_order(
    id2label: Mapping[int, object], recipe_names: Sequence[str] | None, data_labels: Sequence[str], section: str
) -> list[int]:
    """For each label of the data, the index of the model's output for it.

    Args:
        id2label: from the model's configuration.
        recipe_names: the recipe's names of the outputs, in their order; they take precedence over the model's.
        data_labels: the data's labels.
        section: the model's path in the recipe, for errors.

    Raises:
        InputError: the outputs have no names, gaps in their indices, or other names than the data's labels.
    """
    count = len(id2label)
    check_count(recipe_names, count, section)
    # The data's labels are in the same form.
    names = [unicodedata.normalize("NFC", name) for name in recipe_names or _config_names(id2label, section)]
    unnamed = [f"{PREFIX}{index}" for index in range(count)]
    if not recipe_names and names == unnamed and set(names) != set(data_labels):
        names = [name.removeprefix(PREFIX) for name in names]  # they match if the data's labels are 0, 1, ...
        if count == len(data_labels) and set(names) != set(data_labels):
            raise InputError(
                f"{section}: its outputs have no names ({PREFIX}0, {PREFIX}1, ...). Name them in the order of its "
                f"training; if that is the data's order: {section}.labels: [{', '.join(data_labels)}]"
            )
    if sorted(names) != sorted(data_labels):
        raise InputError(
            f"{section}: its {len(names)} labels ({', '.join(names[:5])}, ...) are not the data's {len(data_labels)} "
            f"({', '.join(data_labels[:5])}, ...); give the teacher a section train, or use data with its labels"
        )
    return [names.index(label) for label in data_labels]


def check_count(recipe_names: Sequence[str] | None, count: int, section: str) -> None:
    """Refuse names whose number is not that of the model's outputs."""
    if recipe_names is not None and len(recipe_names) != count:
        raise InputError(
            f"{section}.labels: names {len(recipe_names)} outputs, the model has {count}; name every one, in order"
        )


def _config_names(id2label: Mapping[int, object], section: str) -> list[str]:
    if sorted(id2label) != list(range(len(id2label))):
        first = ", ".join(map(str, list(id2label)[:5]))
        raise InputError(
            f"{section}: id2label in its config.json numbers its {len(id2label)} outputs {first}, ..., not 0, 1, 2, "
            f"...; name them in their order: {section}.labels: [...]"
        )
    return [str(id2label[index]) for index in range(len(id2label))]


def reorder_outputs(net: Any, order: Sequence[int], labels: Sequence[str], section: str) -> None:
    """Reorder and rename the outputs of a transformers classifier.

    Args:
        net: the classifier; its weights are changed in place.
        order: the present indices of the outputs, in the new order.
        labels: the names of the outputs in the new order.
        section: the model's path in the recipe, for errors.

    Raises:
        InputError: its weights cannot be assigned to outputs.
    """
    import torch  # imported here, since step keys need this module and must not wait seconds for torch

    if list(order) != sorted(order):
        state = net.state_dict()
        for name, dimension in _label_dimensions(net, section).items():
            state[name].copy_(state[name].index_select(dimension, torch.tensor(order, device=state[name].device)))
    net.config.id2label = dict(enumerate(labels))
    net.config.label2id = {label: index for index, label in enumerate(labels)}


def _label_dimensions(net: Any, section: str) -> dict[str, int]:
    """The tensors that have an entry for each label, and the dimension of the labels.

    Architectures name their heads differently. So the same model is built, without memory, with one more label: the
    tensors that are larger by one belong to the head.
    """
    import torch

    config = copy.deepcopy(net.config)
    config.num_labels += 1
    with torch.device("meta"):
        wider = type(net)(config).state_dict()
    dimensions = {}
    for name, tensor in net.state_dict().items():
        pairs = enumerate(zip(tensor.shape, wider[name].shape, strict=True))
        wider_dimensions = [(dimension, after - before) for dimension, (before, after) in pairs if after != before]
        if not wider_dimensions:
            continue
        if len(wider_dimensions) > 1 or wider_dimensions[0][1] != 1:
            raise InputError(
                f"{section}: its labels are in another order than the data's, and its head ({name}) cannot be "
                "reordered; give the teacher a section train"
            )
        dimensions[name] = wider_dimensions[0][0]
    return dimensions
