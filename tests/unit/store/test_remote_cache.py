import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.errors import InputError, UnderstudyError
from understudy.store import Store
from understudy.store.remote_cache import ADDRESS, OLD_ADDRESS, RemoteCache, from_environment

KEYS = ("a" * 64, "b" * 64)


def silent(text: str) -> None:
    del text


def finished(store: Store, key: str, content: bytes) -> str:
    """A step that a store has finished; the digest of its result."""
    lease = store.acquire(key)
    assert lease is not None
    staged = lease.staging()
    (staged / "toy").write_bytes(content)
    return store.conclude(lease, "toy", {"step": "toy"}, staged, "toys", {}, {"size": len(content)}, 0.5)


def two_stores_and_a_bucket(folder: Path) -> tuple[Store, Store, RemoteCache]:
    return Store(folder / "here"), Store(folder / "there"), RemoteCache(f"file://{folder / 'bucket'}", silent)


def test_a_step_finished_in_one_store_is_found_by_another(tmp_path: Path) -> None:
    first, second, remote = two_stores_and_a_bucket(tmp_path)
    digest = finished(first, KEYS[0], b"content")
    remote.send(first, KEYS[0])
    assert second.cached_step(KEYS[0]) is None
    remote.fetch(second, KEYS[0])
    assert second.cached_step(KEYS[0]) == first.cached_step(KEYS[0])
    assert second.objects.damage(digest, thorough=True) == []


def test_an_unknown_key_fetches_nothing(tmp_path: Path) -> None:
    first, second, remote = two_stores_and_a_bucket(tmp_path)
    finished(first, KEYS[0], b"content")
    remote.send(first, KEYS[0])
    remote.fetch(second, KEYS[1])
    assert second.cached_step(KEYS[1]) is None
    assert list(second.objects) == []


def test_a_stored_step_is_not_sent_again(tmp_path: Path) -> None:
    first, _, remote = two_stores_and_a_bucket(tmp_path)
    finished(first, KEYS[0], b"content")
    remote.send(first, KEYS[0])
    messages: list[str] = []
    RemoteCache(f"file://{tmp_path / 'bucket'}", messages.append).send(first, KEYS[0])
    assert messages == []


def test_a_steps_entry_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _, remote = two_stores_and_a_bucket(tmp_path)
    finished(first, KEYS[0], b"content")

    def breaks_off(*arguments: object) -> int:
        del arguments
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("understudy.store.transfer.push", breaks_off)
        with pytest.raises(KeyboardInterrupt):
            remote.send(first, KEYS[0])
    assert not (tmp_path / "bucket" / "step-cache").exists()


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"key": "?"}), "[" * 100_000])
def test_a_damaged_entry_is_none_and_is_replaced(tmp_path: Path, content: str) -> None:
    first, second, remote = two_stores_and_a_bucket(tmp_path)
    finished(first, KEYS[0], b"content")
    remote.send(first, KEYS[0])
    (tmp_path / "bucket" / "step-cache" / f"{KEYS[0]}.json").write_text(content)
    remote.fetch(second, KEYS[0])
    assert second.step_cache.get(KEYS[0]) is None
    remote.send(first, KEYS[0])
    remote.fetch(second, KEYS[0])
    assert second.step_cache.get(KEYS[0]) == first.step_cache.get(KEYS[0])


@pytest.mark.parametrize("missing", ["manifest.json", "toy"])
def test_a_step_with_a_missing_file_is_unknown_and_is_sent_again(tmp_path: Path, missing: str) -> None:
    first, second, remote = two_stores_and_a_bucket(tmp_path)
    digest = finished(first, KEYS[0], b"content")
    remote.send(first, KEYS[0])
    next((tmp_path / "bucket").rglob(missing)).unlink()
    remote.fetch(second, KEYS[0])
    assert second.step_cache.get(KEYS[0]) is None
    remote.send(first, KEYS[0])
    remote.fetch(second, KEYS[0])
    assert [cached.digest for cached in second.step_cache] == [digest]


def test_an_earlier_result_does_not_replace_a_later_one(tmp_path: Path) -> None:
    first, second, remote = two_stores_and_a_bucket(tmp_path)
    for store, content in ((first, b"earlier"), (second, b"later")):
        finished(store, KEYS[0], content)
        remote.send(store, KEYS[0])
    remote.send(first, KEYS[0])
    fresh = Store(tmp_path / "fresh")
    remote.fetch(fresh, KEYS[0])
    assert fresh.step_cache.get(KEYS[0]) == second.step_cache.get(KEYS[0])


def test_a_damaged_object_does_not_become_one_here(tmp_path: Path) -> None:
    first, second, remote = two_stores_and_a_bucket(tmp_path)
    finished(first, KEYS[0], b"content")
    remote.send(first, KEYS[0])
    next((tmp_path / "bucket").rglob("toy")).write_bytes(b"CONTENT")
    with pytest.raises(UnderstudyError, match="damaged or missing there"):
        remote.fetch(second, KEYS[0])
    assert second.cached_step(KEYS[0]) is None


@given(
    done=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(KEYS), st.sampled_from([b"one", b"two", b"three"])), max_size=8
    )
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_new_store_finds_the_latest_result_of_every_step(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[int, str, bytes]]
) -> None:
    tmp_path = tmp_path_factory.mktemp("remote")
    *stores, remote = two_stores_and_a_bucket(tmp_path)
    latest: dict[str, str] = {}
    for index, key, content in done:
        store = stores[index]
        assert isinstance(store, Store)
        latest[key] = finished(store, key, content)
        remote.send(store, key)
    fresh = Store(tmp_path / "fresh")
    for key in KEYS:
        remote.fetch(fresh, key)
    assert {cached.key: cached.digest for cached in fresh.step_cache} == latest
    assert all(fresh.cached_step(key) for key in latest)


def test_two_who_fetch_at_once_both_have_it(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    first, second, remote = two_stores_and_a_bucket(tmp_path)
    digest = finished(first, KEYS[0], b"content" * 100_000)
    for key in KEYS:  # two steps with one result
        first.step_cache.put(replace(next(iter(first.step_cache)), key=key))
        remote.send(first, key)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda key: remote.fetch(second, key), KEYS))
    assert {cached.digest for cached in second.step_cache} == {digest}
    assert second.objects.damage(digest, thorough=True) == []
    assert list((second.folder / "work").iterdir()) == []


def test_it_is_the_environment_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    assert from_environment(silent) is None
    monkeypatch.setenv(OLD_ADDRESS, "")
    monkeypatch.setenv(ADDRESS, "s3://bucket/prefix")
    assert isinstance(from_environment(silent), RemoteCache)


@pytest.mark.parametrize("new", ["", "s3://bucket/prefix"])
def test_the_variables_old_name_is_refused_with_the_new_one(monkeypatch: pytest.MonkeyPatch, new: str) -> None:
    monkeypatch.setenv("UNDERSTUDY_RECORD", "s3://bucket/prefix")
    monkeypatch.setenv(ADDRESS, new)
    with pytest.raises(InputError, match=r"UNDERSTUDY_RECORD: it was renamed to UNDERSTUDY_REMOTE_CACHE; rename it"):
        from_environment(silent)


def test_an_entry_under_another_key_is_none(tmp_path: Path) -> None:
    first, second, remote = two_stores_and_a_bucket(tmp_path)
    finished(first, KEYS[0], b"content")
    remote.send(first, KEYS[0])
    entries, planted = tmp_path / "bucket" / "step-cache", "c" * 64
    text = (entries / f"{KEYS[0]}.json").read_text()
    (entries / f"{KEYS[1]}.json").write_text(text)
    (entries / f"{planted}.json").write_text(text.replace(KEYS[0], "../../planted"))
    assert not remote.fetch(second, KEYS[1])
    assert not remote.fetch(second, planted)
    assert not list(tmp_path.rglob("planted*"))
