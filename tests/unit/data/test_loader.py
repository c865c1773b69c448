"""The examples of a step are a function of the step: an epoch reads each example exactly once."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.loader import IGNORED, LabelledExamples, Order, PackedExamples, TextExamples, open_split
from understudy.data.measured import Documents
from understudy.data.packing import write_packed

unhurried = settings(deadline=None)
sizes = st.integers(1, 200)
seeds = st.integers(0, 2**31 - 1)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Order, int, int]:
    """An order with a number of ranks and of accumulated parts that share its batches evenly."""
    world_size, parts = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    width = draw(st.integers(1, 6))
    return Order(draw(sizes), width * world_size * parts, draw(seeds)), world_size, parts


def _shares(order: Order, step: int, rank: int, world_size: int, parts: int) -> list[Any]:
    return [order.batch(step)[places] for places in order.places(rank, world_size, parts)]


def read(order: Order, step: int, world_size: int, parts: int) -> list[int]:
    """The examples that all ranks read at a step, part by part and rank by rank."""
    by_rank = [_shares(order, step, rank, world_size, parts) for rank in range(world_size)]
    assert all(len(shares) == parts for shares in by_rank)
    return [int(index) for part in range(parts) for rank in range(world_size) for index in by_rank[rank][part]]


@unhurried
@given(layouts(), st.integers(0, 3))
def test_an_epoch_shows_each_example_once_whatever_the_layout(layout: tuple[Order, int, int], epoch: int) -> None:
    order, world_size, parts = layout
    first = epoch * order.steps_per_epoch
    indices = [
        index for step in range(first, first + order.steps_per_epoch) for index in read(order, step, world_size, parts)
    ]
    assert sorted(indices) == list(range(order.examples))


@unhurried
@given(layouts(), st.integers(0, 500))
def test_the_shares_of_a_step_are_its_batch_in_order(layout: tuple[Order, int, int], step: int) -> None:
    order, world_size, parts = layout
    assert read(order, step, world_size, parts) == order.batch(step).tolist()


@unhurried
@given(layouts(), st.integers(0, 500))
def test_no_share_is_larger_than_another_of_a_full_batch(layout: tuple[Order, int, int], step: int) -> None:
    order, world_size, parts = layout
    width = order.batch_size // (world_size * parts)
    shares = [share for rank in range(world_size) for share in _shares(order, step, rank, world_size, parts)]
    assert all(len(share) <= width for share in shares)
    if len(order.batch(step)) == order.batch_size:
        assert all(len(share) == width for share in shares)


@unhurried
@given(sizes, sizes, seeds)
def test_every_batch_but_an_epochs_last_is_full(examples: int, batch_size: int, seed: int) -> None:
    order = Order(examples, batch_size, seed)
    lengths = [len(order.batch(step)) for step in range(order.steps_per_epoch)]
    assert lengths[:-1] == [batch_size] * (len(lengths) - 1)
    assert 0 < lengths[-1] <= batch_size
    assert sum(lengths) == examples


@unhurried
@given(layouts(), st.integers(0, 300), st.integers(0, 50))
def test_a_run_that_resumes_at_a_step_reads_what_it_would_have_read(
    layout: tuple[Order, int, int], start: int, further: int
) -> None:
    order, world_size, parts = layout
    for step in range(start):
        order.batch(step)
    resumed = Order(order.examples, order.batch_size, order.seed)
    assert read(resumed, start + further, 1, 1) == read(order, start + further, world_size, parts)


def test_every_epoch_and_seed_has_an_order_of_its_own() -> None:
    def epochs(seed: int) -> list[list[int]]:
        order = Order(50, 50, seed)
        return [order.batch(step).tolist() for step in range(3)]

    orders = [tuple(epoch) for seed in (0, 1) for epoch in epochs(seed)]
    assert len(set(orders)) == 6


def test_the_order_is_numpys_permutation_of_seed_and_epoch() -> None:
    order = Order(10, 4, 7)
    expected = np.random.default_rng([7, 2]).permutation(10)
    order_of_epoch = np.concatenate([order.batch(step) for step in range(6, 9)])
    np.testing.assert_array_equal(order_of_epoch, expected)


def texts(folder: Path, count: int, length: int) -> tuple[TextExamples, Any]:
    tokens = np.random.default_rng(count).integers(1, 60, count).astype(np.uint16)
    np.save(folder / "train.tokens.npy", tokens)
    return TextExamples(folder, "train", length, 0), tokens.astype(np.int64)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 120), st.integers(2, 20))
def test_windows_hold_each_token_once_as_a_target_after_the_one_before(
    tmp_path_factory: pytest.TempPathFactory, count: int, length: int
) -> None:
    examples, tokens = texts(tmp_path_factory.mktemp("texts"), count, length)
    inputs, labels = examples.batch(np.arange(len(examples)))
    assert inputs.shape == labels.shape == (len(examples), length)
    assert inputs.dtype == labels.dtype == torch.int64
    real = labels != IGNORED
    np.testing.assert_array_equal(labels[real], tokens[1:])
    np.testing.assert_array_equal(inputs[real], tokens[:-1])
    assert (inputs[~real] == 0).all()
    assert real.any(dim=1).all()
    assert inputs.is_contiguous()
    assert labels.is_contiguous()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 120), st.integers(2, 20), st.data())
def test_targets_are_counted_without_reading(
    tmp_path_factory: pytest.TempPathFactory, count: int, length: int, data: st.DataObject
) -> None:
    examples, _ = texts(tmp_path_factory.mktemp("texts"), count, length)
    indices = np.array(data.draw(st.lists(st.integers(0, len(examples) - 1), max_size=8)), np.int64)
    _, labels = examples.batch(indices)
    assert examples.targets(indices) == int((labels != IGNORED).sum())


def test_the_last_window_is_filled_up_with_what_does_not_count(tmp_path: Path) -> None:
    np.save(tmp_path / "train.tokens.npy", np.array([5, 6, 7, 8, 9, 10], np.uint16))
    examples = TextExamples(tmp_path, "train", 3, eos=1)
    inputs, labels = examples.batch(np.array([0, 1]))
    assert inputs.tolist() == [[5, 6, 7], [8, 9, 1]]
    assert labels.tolist() == [[6, 7, 8], [9, 10, IGNORED]]
    assert (len(examples), examples.targets(np.array([0, 1]))) == (2, 5)


def test_the_last_window_alone_is_what_it_is_among_others(tmp_path: Path) -> None:
    examples, _ = texts(tmp_path, 20, 16)
    together, alone = examples.batch(np.array([0, 1])), examples.batch(np.array([1]))
    for several, single in zip(together, alone, strict=True):
        assert several[1].tolist() == single[0].tolist()


def test_tokens_of_a_large_vocabulary_are_read_as_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "train.tokens.npy", np.array([70_000, 2**31, 3], np.uint32))
    inputs, labels = TextExamples(tmp_path, "train", 2, eos=1).batch(np.array([0]))
    assert inputs.tolist() == [[70_000, 2**31]]
    assert labels.tolist() == [[2**31, 3]]


def test_images_come_as_they_are_stored_with_one_target_each(image_examples: Path) -> None:
    examples = LabelledExamples(image_examples, "train", "images")
    indices = np.array([3, 44, 3])
    images, labels = examples.batch(indices)
    assert (images.dtype, images.shape, labels.dtype) == (torch.uint8, (3, 1, 8, 8), torch.int64)
    np.testing.assert_array_equal(images, np.load(image_examples / "train.images.npy")[indices])
    np.testing.assert_array_equal(labels, np.load(image_examples / "train.labels.npy")[indices])
    assert (len(examples), examples.targets(indices)) == (45, 3)


def test_a_batch_may_be_written_into_without_touching_the_file(image_examples: Path) -> None:
    before = (image_examples / "train.images.npy").read_bytes()
    images, labels = LabelledExamples(image_examples, "train", "images").batch(np.array([0, 1]))
    images.zero_()
    labels.zero_()
    assert (image_examples / "train.images.npy").read_bytes() == before


def test_a_split_is_opened_by_its_task(image_examples: Path, text_examples: Path) -> None:
    assert isinstance(open_split(image_examples, "train"), LabelledExamples)
    assert len(open_split(text_examples, "train")) == 44


@pytest.fixture
def packed(packed_examples: Path) -> PackedExamples:
    examples = open_split(packed_examples, "train")
    assert isinstance(examples, PackedExamples)
    return examples


def test_packed_sequences_hold_what_is_measured_of_documents(packed_examples: Path, packed: PackedExamples) -> None:
    """Inputs and targets are those of the evaluation's windows, several in a sequence."""
    windows = Documents(packed_examples, 16, 0, 16, split="train").batches(1)
    expected = sorted((batch.inputs[0].tolist(), batch.targets[0].tolist()) for batch in windows)
    inputs, labels = packed.batch(np.arange(len(packed)))
    positions = packed.positions(np.arange(len(packed)))
    documents = []
    for row, row_positions in enumerate(positions):
        starts = [*torch.nonzero(row_positions == 0).flatten().tolist(), 16]
        assert row_positions.tolist() == [position for a, b in itertools.pairwise(starts) for position in range(b - a)]
        for first, end in itertools.pairwise(starts):
            documents.append((inputs[row, first:end].tolist(), labels[row, first:end].tolist()))
    assert sorted(part for part in documents if IGNORED not in part[1]) == expected
    filling = [part for part in documents if IGNORED in part[1]]
    assert all(set(inputs) == {0} and set(labels) == {IGNORED} for inputs, labels in filling)


@pytest.mark.parametrize("indices", [[3, 0, 11], [], [7]])
def test_targets_of_packed_sequences_are_counted_without_reading(packed: PackedExamples, indices: list[int]) -> None:
    chosen = np.array(indices, dtype=np.int64)
    inputs, labels = packed.batch(chosen)
    assert inputs.shape == labels.shape == packed.positions(chosen).shape == (len(indices), 16)
    assert inputs.dtype == labels.dtype == packed.positions(chosen).dtype == torch.int64
    assert packed.targets(chosen) == int((labels != IGNORED).sum())


def test_a_split_without_documents_has_no_packed_sequences(tmp_path: Path) -> None:
    np.save(tmp_path / "train.tokens.npy", np.array([], np.uint16))
    np.save(tmp_path / "train.offsets.npy", np.array([0]))
    write_packed(tmp_path, "train", 4)
    assert len(PackedExamples(tmp_path, "train", 4, 0, 0)) == 0


def test_what_is_not_packed_has_no_positions(tmp_path: Path, image_examples: Path) -> None:
    examples, _ = texts(tmp_path, 20, 16)
    assert examples.positions(np.array([0])) is None
    assert LabelledExamples(image_examples, "train", "images").positions(np.array([0])) is None
