from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.store import Store
from understudy.store.files import canonical, sha256
from understudy.store.judged import FOLDER, Judged


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from("123456")), max_size=20))
def test_each_model_has_the_number_in_which_it_came_first(tmp_path_factory, judged):
    folder, by_split = tmp_path_factory.mktemp("store"), {}
    for name, split, digest in judged:
        results = by_split.setdefault((name, split), [])
        if digest not in results:
            results.append(digest)
        assert Judged(folder, name, split, digest).number == results.index(digest) + 1


def test_many_at_once_get_a_number_each(tmp_path):
    digests = [f"{number:064x}" for number in range(40)] * 2
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda digest: Judged(tmp_path, "model", "split", digest).number, digests))
    assert numbers[:40] == numbers[40:]
    assert sorted(numbers[:40]) == list(range(1, 41))
    assert not list(tmp_path.rglob(".*"))


def test_a_store_counts(tmp_path):
    store = Store(tmp_path / "store")
    assert [store.judged("m", "s", digest).number for digest in ("a", "b", "a")] == [1, 2, 1]


def verdicts(model, *outcomes):
    """Judge by margins, in this order, and give the rejections that each verdict is told of."""
    told = []
    for margin, approved in outcomes:
        told.append([rules["margin"] for rules in model.earlier_rejections({"margin": margin})])
        model.record({"margin": margin}, approved=approved)
    return told


def test_a_model_that_was_rejected_by_other_rules_is_remembered(tmp_path):
    model = Judged(tmp_path, "m", "s", "a")
    assert verdicts(model, (0.05, False), (0.06, False), (0.08, True), (0.1, True)) == [
        [],
        [0.05],
        [0.05, 0.06],
        [0.05, 0.06],
    ]
    assert Judged(tmp_path, "m", "s", "a").number == 1


def test_a_repeated_verdict_is_told_of_the_same_rejections(tmp_path):
    """Otherwise its step would have another key each time."""
    model = Judged(tmp_path, "m", "s", "a")
    assert verdicts(model, (0.05, False), (0.06, False), (0.05, False), (0.06, False)) == [[], [0.05], [], [0.05]]


def test_rejections_are_those_of_the_model_the_split_and_the_registered_name(tmp_path):
    verdicts(Judged(tmp_path, "m", "s", "a"), (0.05, False))
    for other in (("m", "s", "b"), ("m", "t", "a"), ("n", "s", "a")):
        assert verdicts(Judged(tmp_path, *other), (0.08, True)) == [[]]


def test_models_that_an_older_understudy_counted_keep_their_number_and_have_no_rejections(tmp_path):
    folder = tmp_path / FOLDER / sha256(canonical({"name": "m", "split": "s"}))
    for number, digest in enumerate("ab", 1):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / digest).touch()
    model = Judged(tmp_path, "m", "s", "b")
    assert verdicts(model, (0.05, False), (0.08, True)) == [[], [0.05]]
    assert model.number == 2
    assert (folder / "2" / "b").read_bytes() == b""
