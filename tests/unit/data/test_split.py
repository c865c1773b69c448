import hashlib

from hypothesis import given
from hypothesis import strategies as st

from understudy.data.split import assign, keep_in_training

RANK = {"train": 0, "validation": 1, "test": 2}

ids = st.integers(0, 40).map(lambda n: hashlib.sha256(str(n).encode()).hexdigest())
source_split = st.sampled_from([None, "train", "validation", "test"])
shares = st.tuples(st.floats(0, 0.5), st.floats(0, 0.5))


@given(st.lists(st.tuples(ids, source_split)), shares)
def test_equal_content_lies_on_one_side(records, shares):
    splits, _ = assign(records, *shares)
    for id_ in {id_ for id_, _ in records}:
        assert len({split for (other_id, _), split in zip(records, splits, strict=True) if other_id == id_}) == 1


@given(st.lists(ids), st.lists(ids), shares)
def test_records_that_come_later_move_no_other(first, later, shares):
    before, _ = assign([(id_, None) for id_ in first], *shares)
    after, _ = assign([(id_, None) for id_ in first + later], *shares)
    assert after[: len(first)] == before


@given(st.lists(ids), shares, st.randoms())
def test_order_has_no_say(records, shares, random):
    shuffled = random.sample(records, len(records))
    before = dict(zip(records, assign([(id_, None) for id_ in records], *shares)[0], strict=True))
    assert dict(zip(shuffled, assign([(id_, None) for id_ in shuffled], *shares)[0], strict=True)) == before


@given(st.lists(st.tuples(ids, source_split)), shares)
def test_what_the_source_calls_test_is_test_and_nothing_else_is(records, shares):
    splits, _ = assign(records, *shares)
    tested = {id_ for id_, source_split in records if source_split == "test"}
    if tested:
        assert {id_ for (id_, _), split in zip(records, splits, strict=True) if split == "test"} == tested


@given(st.lists(st.tuples(ids, source_split)), shares)
def test_moved_counts_those_that_equal_content_took_along(records, shares):
    splits, moved = assign(records, *shares)
    splits_of = {}
    for (id_, _), split in zip(records, splits, strict=True):
        splits_of[id_] = max(split, splits_of.get(id_, split), key=RANK.get)
    assert all(split == splits_of[id_] for (id_, _), split in zip(records, splits, strict=True))
    assert 0 <= moved <= sum(source_split != "test" for _, source_split in records)
    if len({source_split for _, source_split in records}) <= 1:
        assert moved == 0


def test_a_duplicate_of_a_test_record_leaves_training():
    same, different = (hashlib.sha256(text).hexdigest() for text in (b"same", b"other"))
    records = [(same, "train"), (different, "train"), (same, "validation"), (same, "test")]
    assert assign(records, 0, 0) == (["test", "train", "test", "test"], 2)


def test_shares_are_those_of_the_recipe():
    records = [(hashlib.sha256(str(n).encode()).hexdigest(), None) for n in range(20_000)]
    splits, _ = assign(records, 0.1, 0.2)
    assert abs(splits.count("test") / 20_000 - 0.2) < 0.01
    assert abs(splits.count("validation") / 20_000 - 0.1) < 0.01


def test_only_validation_is_carved_out_beside_an_own_test_split():
    hashes = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(10_000)]
    records = [(id_, "test" if n < 1000 else "train") for n, id_ in enumerate(hashes)]
    splits, moved = assign(records, 0.1, 0.5)
    assert splits[:1000] == ["test"] * 1000
    assert "test" not in splits[1000:]
    assert abs(splits.count("validation") / 9000 - 0.1) < 0.01
    assert moved == 0


def test_an_own_validation_split_is_all_of_it():
    hashes = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(1000)]
    records = [(id_, "validation" if n < 10 else "train") for n, id_ in enumerate(hashes)]
    assert assign(records, 0.5, 0)[0].count("validation") == 10


labelled = st.lists(st.tuples(ids, source_split, st.sampled_from("abcde")))


@given(labelled, shares)
def test_each_label_that_may_be_trained_on_is(records, shares):
    sides, labels = [(id_, source_split) for id_, source_split, _ in records], [label for _, _, label in records]
    before, _ = assign(sides, *shares)
    splits, moved_labels = keep_in_training(sides, labels, before)
    fixed = {id_ for id_, source_split in sides if source_split in ("test", "validation")}
    free = {label for (id_, _), label in zip(sides, labels, strict=True) if id_ not in fixed}
    assert free <= {label for label, split in zip(labels, splits, strict=True) if split == "train"}
    assert set(moved_labels) == free - {label for label, split in zip(labels, before, strict=True) if split == "train"}
    moved = {id_ for (id_, _), old, new in zip(sides, before, splits, strict=True) if old != new}
    assert len(moved) <= len(moved_labels)
    assert not moved & fixed
    for id_ in {id_ for id_, _ in sides}:
        assert len({split for (other_id, _), split in zip(sides, splits, strict=True) if other_id == id_}) == 1


@given(labelled, shares, st.randoms())
def test_order_has_no_say_in_what_is_kept_for_training(records, shares, random):
    def split(records):
        sides, labels = [(id_, source_split) for id_, source_split, _ in records], [label for _, _, label in records]
        splits, moved_labels = keep_in_training(sides, labels, assign(sides, *shares)[0])
        return dict(zip(sides, splits, strict=True)), moved_labels

    assert split(records) == split(random.sample(records, len(records)))


def test_documents_have_no_labels_to_keep():
    sides = [(hashlib.sha256(text).hexdigest(), None) for text in (b"a", b"b")]
    assert keep_in_training(sides, [None, None], ["test", "test"]) == (["test", "test"], [])
