import os
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.measured import Documents, Labelled
from understudy.evaluate.shares import WHOLE, Share


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 5), st.integers(1, 5), st.integers(1, 6))
def test_the_ranks_batches_in_turn_are_those_of_one_alone(tmp_path_factory, lengths, size, world_size, stride):
    folder = tmp_path_factory.mktemp("split")
    np.save(folder / "test.tokens.npy", np.arange(sum(lengths) + len(lengths)))
    np.save(folder / "test.offsets.npy", np.cumsum([0, *(length + 1 for length in lengths)]))
    np.save(folder / "test.bytes.npy", np.array(lengths))
    np.save(folder / "test.images.npy", np.zeros((len(lengths), 1, 2, 2), dtype=np.uint8))
    np.save(folder / "test.labels.npy", np.arange(len(lengths)))
    for split in (Documents(folder, 6, 0, stride), Labelled(folder, "images")):
        shares = [split.batches(size, rank, world_size) for rank in range(world_size)]
        together = [batch for turn in zip_longest(*shares) for batch in turn if batch]
        for one, gathered in zip(split.batches(size), together, strict=True):
            assert np.array_equal(one.targets, gathered.targets)
            assert np.array_equal(one.examples, gathered.examples)


@pytest.mark.parametrize("found", [1, None])
def test_a_rank_alone_gathers_its_own_without_a_process_group(found):
    WHOLE.meet()
    assert WHOLE.gathered(found) == ([found] if found else [])


def gathered_by_rank():
    """The results that a rank gathers in two rounds; in the second the last rank is idle."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    share = Share(rank, 2)
    rounds = [share.gathered(f"batch {rank}"), share.gathered(None if rank else "batch 2")]
    share.meet()
    dist.destroy_process_group()
    return rounds


def test_the_first_rank_has_all_in_the_order_of_the_batches_and_the_others_nothing(ranks):
    assert ranks.run(2, gathered_by_rank) == [[["batch 0", "batch 1"], ["batch 2"]], [[], []]]
