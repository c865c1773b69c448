import unicodedata
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageClassification, BeitConfig, ConvNextConfig, ResNetConfig, ViTConfig

from understudy.errors import InputError
from understudy.models.labels import output_order, reorder_outputs

WHERE = "teacher.model"
SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
PIXELS = {"image_size": 8, "num_channels": 3, "patch_size": 4}
CONFIGS = [
    ViTConfig(**SMALL, **PIXELS, num_labels=4),
    BeitConfig(**SMALL, **PIXELS, num_labels=4),
    ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], num_labels=4),
    ConvNextConfig(hidden_sizes=[4, 4, 4, 4], depths=[1, 1, 1, 1], patch_size=1, num_labels=4),
]


def order(
    *model_labels: str, data: tuple[str, ...] = ("a", "b", "c"), recipe_names: tuple[str, ...] | None = None
) -> list[int]:
    return output_order(dict(enumerate(model_labels)), recipe_names, data, WHERE)


def test_labels_are_matched_by_name() -> None:
    assert order("a", "b", "c") == [0, 1, 2]
    assert order("c", "a", "b") == [1, 2, 0]
    assert order("x", "y", "z", recipe_names=("b", "c", "a")) == [2, 0, 1]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_labels_are_matched_whatever_their_form_of_unicode(form: str) -> None:
    names = [
        unicodedata.normalize(form, name) for name in ("cat", "café", "Bär")
    ]  # as a config.json or a recipe has them
    data = ["Bär", "café", "cat"]  # ingest makes all of them NFC
    assert output_order(dict(enumerate(names)), None, data, "teacher.model") == [2, 1, 0]
    assert output_order({0: "x", 1: "y", 2: "z"}, names, data, "teacher.model") == [2, 1, 0]


def test_outputs_without_names_are_those_of_numbers_alone() -> None:
    assert order("LABEL_0", "LABEL_1", "LABEL_2", data=("0", "1", "2")) == [0, 1, 2]
    with pytest.raises(
        InputError, match=r"no names \(LABEL_0, LABEL_1, \.\.\.\)\. .*teacher\.model\.labels: \[a, b, c\]"
    ):
        order("LABEL_0", "LABEL_1", "LABEL_2")


def test_data_may_call_its_labels_as_outputs_without_names_are_called() -> None:
    names = ("LABEL_0", "LABEL_1")
    assert order(*names, data=names) == [0, 1]
    assert order(*names, data=names[::-1]) == [1, 0]
    assert order(*names, data=names, recipe_names=names[::-1]) == [1, 0]
    with pytest.raises(
        InputError, match=r"its 2 labels \(LABEL_0, LABEL_1, "
    ):  # the recipe's names are taken literally
        order(*names, data=("0", "1"), recipe_names=names)


def test_names_of_outputs_that_are_numbers_are_taken_as_text() -> None:
    assert output_order({0: 1, 1: 0}, None, ["0", "1"], WHERE) == [1, 0]


@pytest.mark.parametrize("numbers", [(1, 2, 3), (0, 1, 3)])
def test_outputs_whose_numbers_have_gaps_are_named_by_the_recipe(numbers: tuple[int, ...]) -> None:
    id2label = dict(zip(numbers, "abc", strict=True))
    with pytest.raises(InputError, match=rf"3 outputs {numbers[0]}, {numbers[1]}, 3, .*teacher\.model\.labels: \["):
        output_order(id2label, None, ["a", "b", "c"], WHERE)
    assert output_order(id2label, ["c", "b", "a"], ["a", "b", "c"], WHERE) == [2, 1, 0]


@pytest.mark.parametrize(
    ("model_labels", "message"),
    [
        (("x", "b", "c"), r"its 3 labels \(x, b, c, \.\.\.\) are not the data's 3 \(a, b, c, "),
        (("a", "b"), r"its 2 labels"),
        (("a", "b", "c", "d"), r"its 4 labels"),
        (("a", "b", "b"), r"its 3 labels"),
        (("LABEL_0", "LABEL_1"), r"its 2 labels \(0, 1"),
    ],
)
def test_other_labels_are_refused(model_labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        order(*model_labels)


def test_the_recipe_names_every_output() -> None:
    with pytest.raises(InputError, match=r"teacher\.model\.labels: names 2 outputs, the model has 3"):
        order("x", "y", "z", recipe_names=("a", "b"))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_the_outputs_of_any_architecture_can_be_put_into_order(config: Any) -> None:
    torch.manual_seed(0)
    net = AutoModelForImageClassification.from_config(config).eval()
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        before = net(images).logits
        reorder_outputs(net, [2, 0, 3, 1], ["a", "b", "c", "d"], WHERE)
        torch.testing.assert_close(net(images).logits, before[:, [2, 0, 3, 1]])
    assert net.config.id2label == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert net.config.label2id["d"] == 3


class TwoPerLabel(torch.nn.Module):
    """A head whose weights cannot be told apart by label."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.head = config, torch.nn.Linear(4, 2 * config.num_labels)


def test_a_head_that_is_not_understood_is_refused() -> None:
    net = TwoPerLabel(ViTConfig(num_labels=3))
    with pytest.raises(InputError, match=r"teacher\.model: .*its head \(head\.weight\) cannot be reordered"):
        reorder_outputs(net, [1, 0, 2], ["a", "b", "c"], WHERE)
    reorder_outputs(net, [0, 1, 2], ["a", "b", "c"], WHERE)
