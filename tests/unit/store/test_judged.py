from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.store import Store
from understudy.store.judged import number_of


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from("123456")), max_size=20))
def test_each_model_has_the_number_in_which_it_came_first(tmp_path_factory, judged):
    folder, by_split = tmp_path_factory.mktemp("store"), {}
    for name, split, digest in judged:
        results = by_split.setdefault((name, split), [])
        if digest not in results:
            results.append(digest)
        assert number_of(folder, name, split, digest) == results.index(digest) + 1


def test_many_at_once_get_a_number_each(tmp_path):
    digests = [f"{number:064x}" for number in range(40)] * 2
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda digest: number_of(tmp_path, "model", "split", digest), digests))
    assert numbers[:40] == numbers[40:]
    assert sorted(numbers[:40]) == list(range(1, 41))
    assert not list(tmp_path.rglob(".*"))


def test_a_store_counts(tmp_path):
    store = Store(tmp_path / "store")
    assert [store.number_judged("m", "s", digest) for digest in ("a", "b", "a")] == [1, 2, 1]
