from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from understudy.data.augmentation import Augmentation
from understudy.data.operations import OPERATIONS
from understudy.recipe import Augment, RandAugment

unhurried = settings(deadline=None)
BATCH = 24


def images(count: int, channels: int = 2, size: int = 6) -> Tensor:
    """Every pixel is another one, and none is black."""
    return (1 + torch.arange(count * channels * size * size) % 254).to(torch.uint8).view(count, channels, size, size)


def changed(shown: Tensor, step: int = 3, places: slice = slice(0, BATCH), **chosen: Any) -> Tensor:
    return Augmentation(Augment(**chosen), 7, BATCH)(shown, step, places)


def candidates(image: Tensor, flip: bool, crop: int) -> list[Tensor]:
    """All that may become of an image."""
    size = image.shape[-1]
    framed = functional.pad(image, (crop,) * 4)
    cut = [
        framed[:, top : top + size, left : left + size] for top in range(2 * crop + 1) for left in range(2 * crop + 1)
    ]
    return [*cut, *(image.flip(-1) for image in cut)] if flip else cut


@unhurried
@given(st.booleans(), st.integers(0, 3), st.integers(0, 50))
def test_an_image_is_cut_out_of_its_frame_and_may_be_flipped(flip: bool, crop: int, step: int) -> None:
    shown = images(BATCH)
    for before, after in zip(shown, changed(shown, step, flip=flip, crop=crop), strict=True):
        assert any(torch.equal(after, possible) for possible in candidates(before, flip, crop))


def test_nothing_chosen_changes_nothing() -> None:
    assert torch.equal(changed(images(BATCH)), images(BATCH))


@unhurried
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 9), st.booleans())
def test_what_happens_to_an_image_does_not_depend_on_who_reads_it(
    ranks: int, parts: int, step: int, operated: bool
) -> None:
    from understudy.data.loader import Order

    order = Order(100, BATCH - BATCH % (ranks * parts), 7)
    chosen = RandAugment(operations=2, magnitude=7) if operated else None
    augment = Augmentation(Augment(flip=True, crop=2, rand_augment=chosen), 7, order.batch_size)
    shown = images(order.batch_size, channels=3)
    full_batch = augment(shown, step, slice(0, order.batch_size))
    for rank in range(ranks):
        for places in order.places(rank, ranks, parts):
            assert torch.equal(augment(shown[places], step, places), full_batch[places])
            listed = np.arange(order.batch_size)[places]
            assert torch.equal(augment(shown[places], step, listed), full_batch[places])


def test_half_are_flipped_and_places_are_even() -> None:
    shown = images(BATCH, 1, 6)
    flips = [
        torch.equal(changed(shown, step, flip=True)[position], shown[position])
        for step in range(50)
        for position in range(8)
    ]
    assert 0.4 < np.mean(flips) < 0.6
    tops = []
    for step in range(200):
        row = changed(torch.full((BATCH, 1, 4, 4), 9, dtype=torch.uint8), step, crop=1)[0, 0, :, 1]
        tops.append(int(row[0] == 0) - int(row[-1] == 0))
    assert all(0.2 < np.mean(np.array(tops) == top) < 0.47 for top in (-1, 0, 1))


def test_a_short_batch_and_a_single_example_are_changed_alike() -> None:
    shown = images(5)
    short_batch = changed(images(BATCH)[:5], flip=True, crop=2)
    assert torch.equal(changed(shown, flip=True, crop=2), short_batch)
    assert changed(shown[:1], places=slice(20, 24), flip=True).shape == (1, 2, 6, 6)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_every_step_draws_anew(step: int) -> None:
    shown = images(BATCH)
    assert not torch.equal(changed(shown, step, crop=2), changed(shown, step + 1, crop=2))


@unhurried
@given(st.integers(0, 10), st.integers(0, 50))
def test_each_image_gets_one_of_the_operations(magnitude: int, step: int) -> None:
    shown = images(BATCH, channels=3)
    augmented = changed(shown, step, rand_augment=RandAugment(operations=1, magnitude=magnitude))
    strengths = [torch.full((BATCH,), sign * magnitude / 10, dtype=torch.double) for sign in (-1, 1)]
    possible = [operation(shown, strength) for operation in OPERATIONS.values() for strength in strengths]
    for position, after in enumerate(augmented):
        assert any(torch.equal(after, candidate[position]) for candidate in possible)


def test_operations_follow_one_another_and_all_are_drawn_alike_often() -> None:
    class Counting(dict[str, Any]):
        """Operations that do nothing but count."""

        def values(self) -> Any:
            return [self.counted(name) for name in OPERATIONS]

        def counted(self, name: str) -> Any:
            def operation(shown: Tensor, _strength: Tensor) -> Tensor:
                self[name] = self.get(name, 0) + len(shown)
                return shown

            return operation

    drawn = Counting.fromkeys(OPERATIONS, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.data.augmentation.OPERATIONS", drawn)
        for step in range(100):
            changed(images(BATCH), step, rand_augment=RandAugment(operations=3, magnitude=5))
    assert sum(drawn[name] for name in OPERATIONS) == 100 * BATCH * 3
    expected = 100 * BATCH * 3 / len(OPERATIONS)
    assert all(abs(drawn[name] - expected) < 5 * expected**0.5 for name in OPERATIONS)
