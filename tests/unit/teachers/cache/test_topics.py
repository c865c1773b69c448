"""Topics of positions."""

import numpy as np
import pytest

from understudy.teachers.cache import topics


def two_kinds(positions: int, seed: int = 0) -> np.ndarray:
    """Entries of even classes at even positions, of odd classes at others; the last entry is unused at times."""
    rng = np.random.default_rng(seed)
    ids = 2 * np.stack([rng.choice(40, 6, replace=False) for _ in range(positions)]) + np.arange(positions)[:, None] % 2
    ids[rng.random(positions) < 0.3, -1] = -1
    return ids


@pytest.fixture
def fitted() -> tuple[np.ndarray, np.ndarray]:
    """Heads and order."""
    ids = two_kinds(400)
    counts = np.bincount(ids[ids >= 0], minlength=100)
    return topics.fit(ids, counts), np.argsort(-counts, kind="stable")


def test_a_rank_in_a_topic_is_one_class_and_every_class_has_one(fitted: tuple[np.ndarray, np.ndarray]) -> None:
    heads, order = fitted
    heads = heads[:, :7]
    ranks = topics.ranks(heads, order)
    for topic in range(len(heads)):
        of_topic = ranks[:, topic].astype(np.int64)[None]
        assert len(set(of_topic[0].tolist())) == 100
        assert topics.classes(heads, order, np.array([topic]), of_topic)[0].tolist() == list(range(100))
        assert of_topic[0, heads[topic]].tolist() == list(range(7))


def test_positions_of_one_kind_share_topics_that_the_other_kind_does_not_have(
    fitted: tuple[np.ndarray, np.ndarray],
) -> None:
    heads, order = fitted
    assert 2 <= len(heads) <= 400 // topics.POSITIONS_PER_TOPIC
    costs = np.vstack([topics.ranks(heads, order), np.zeros(len(heads), np.int32)]).astype(np.uint8)
    assigned = topics.assign(two_kinds(200, seed=1), costs)
    assert not set(assigned[::2].tolist()) & set(assigned[1::2].tolist())


def test_a_position_gets_the_topic_of_the_least_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    costs = rng.integers(0, 256, (101, 9)).astype(np.uint8)
    costs[-1] = 0
    ids = two_kinds(50)
    expected = [int(np.argmin([sum(int(costs[key, topic]) for key in row if key >= 0) for topic in range(9)]))
                for row in ids]  # fmt: skip
    assert topics.assign(ids, costs).tolist() == expected
    monkeypatch.setattr(topics, "GATHERED", 100)
    assert topics.assign(ids, costs).tolist() == expected


def test_a_small_sample_has_one_topic_in_order_of_frequency() -> None:
    ids = np.array([[3, 1, -1], [3, 2, 1], [3, 2, 0], [3, 2, -1]])
    heads = topics.fit(ids, np.bincount(ids[ids >= 0], minlength=5))
    assert heads.tolist() == [[3, 2, 1, 0, 4]]
