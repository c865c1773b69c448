from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from understudy.errors import InputError
from understudy.models.outputs import Outputs
from understudy.recipe.objectives import Extra
from understudy.train.shapes import check_shapes

IMAGES = {"task": "image-classification", "labels": ["a", "b", "c"]}
TEXTS = {"task": "causal-lm", "vocab_size": 5}


class Split:
    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self._inputs, self._labels = inputs, labels

    def __len__(self) -> int:
        return len(self._labels)

    def batch(self, indices: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[Tensor, Tensor]:
        return self._inputs[indices], self._labels[indices]

    def positions(self, indices: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        pass

    def targets(self, indices: np.ndarray[Any, np.dtype[np.int64]]) -> int:
        return len(indices)


PICTURES = Split(torch.zeros(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64))
TOKENS = Split(torch.zeros(2, 7, dtype=torch.int64), torch.zeros(2, 7, dtype=torch.int64))


class Says(nn.Module):
    """A network whose outputs are logits."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: Tensor, extras: frozenset[Extra]) -> Outputs:
        return Outputs(self.net(inputs))


def check(model: nn.Module, split: Split = PICTURES, description: dict[str, Any] = IMAGES) -> None:
    check_shapes(Says(model).train(model.training), split, description, torch.device("cpu"), "student.model")


@pytest.mark.parametrize("training", [True, False])
def test_a_model_that_fits_passes_and_keeps_its_mode(training: bool) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.BatchNorm1d(3)).train(training)
    check(model)
    check(nn.Embedding(5, 5), TOKENS, TEXTS)
    assert model.training is training
    assert model[2].num_batches_tracked == 0


@pytest.mark.parametrize(
    ("model", "split", "description", "shape", "expected"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), PICTURES, IMAGES, (1, 4), (1, 3)),
        (nn.Linear(4, 3), PICTURES, IMAGES, (1, 1, 4, 3), (1, 3)),
        (nn.Embedding(5, 4), TOKENS, TEXTS, (1, 7, 4), (1, 7, 5)),
    ],
    ids=["too many labels", "not flat", "too few tokens"],
)
def test_the_error_about_a_wrong_shape_has_both_shapes(
    model: nn.Module, split: Split, description: dict[str, Any], shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    with pytest.raises(InputError) as raised:
        check(model, split, description)
    assert str(raised.value).startswith("student.model: ")
    assert f"logits of shape {shape} for inputs" in str(raised.value)
    assert f"the data needs {expected}" in str(raised.value)


def test_the_error_about_a_model_that_fails_has_the_models_message() -> None:
    with pytest.raises(
        InputError, match=r"student\.model: the model fails on the first example, .*\(1, 1, 4, 4\).*mat1"
    ):
        check(nn.Sequential(nn.Flatten(), nn.Linear(15, 3)))


def test_too_little_memory_is_no_fault_of_the_recipes() -> None:
    class Large(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("72 GiB")

    with pytest.raises(torch.OutOfMemoryError):
        check(Large())


def test_a_rank_that_is_gone_is_no_fault_of_the_model() -> None:
    class Gathers(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            raise RuntimeError("[gloo/transport/tcp/pair.cc:561] Connection closed by peer")

    with pytest.raises(RuntimeError, match="closed by peer"):
        check(Gathers())
