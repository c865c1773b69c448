import os
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.store.step_cache import CachedStep, StepCache

CACHED = CachedStep("ab" * 32, "teacher", {"seed": 1}, "cd" * 32, 2.0, 3.0)


@pytest.fixture
def cache(tmp_path: Path) -> StepCache:
    return StepCache(tmp_path)


def test_a_step_is_found_by_its_key_and_no_other(cache: StepCache) -> None:
    cache.put(CACHED)
    assert cache.get(CACHED.key) == CACHED
    assert cache.get("ef" * 32) is None
    assert list(cache) == [CACHED]


def test_the_latest_result_of_a_step_replaces_the_one_before(cache: StepCache) -> None:
    later = replace(CACHED, digest="00" * 32)
    cache.put(CACHED)
    cache.put(later)
    assert list(cache) == [later]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"key": "x"}', b"[1]"])
def test_a_damaged_entry_is_none_until_it_is_written_again(cache: StepCache, content: bytes) -> None:
    cache.put(CACHED)
    (path,) = cache.files()
    path.write_bytes(content)
    assert cache.get(CACHED.key) is None
    assert list(cache) == []
    cache.put(CACHED)
    assert cache.get(CACHED.key) == CACHED


def test_a_holder_that_has_lost_its_lease_writes_nothing(cache: StepCache, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cache.put_fenced(CACHED, tmp_path / "gone")
    assert list(cache) == []
    (tmp_path / "held").mkdir()
    cache.put_fenced(CACHED, tmp_path / "held")
    assert list(cache) == [CACHED]
    assert list((tmp_path / "held").iterdir()) == []


def test_a_step_that_is_used_becomes_young_again(cache: StepCache) -> None:
    cache.put(CACHED)
    (path,) = cache.files()
    os.utime(path, (0, 0))
    cache.touch(CACHED.key)
    assert path.stat().st_mtime > 0
