"""Logits that several ranks cache, with whole models and with shards, and after a stop in between."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.ranks.pool import Ranks
from tests.unit.evaluate import small
from understudy.data.loader import TextExamples
from understudy.evaluate.loading import load_models
from understudy.models.facts import read_description
from understudy.recipe.logits import LogitCache, Nucleus, Sampled, TopK
from understudy.teachers import caching
from understudy.teachers.cache.reader import CachedLogits
from understudy.teachers.cache.sparse import dense
from understudy.teachers.caching import Cached, cache_logits

CPU = torch.device("cpu")
FACTS = {"teacher": "abc", "examples": "def", "temperature": 2.0}


class Interrupted(Exception):
    """A rank that ends."""


def examples(folder: Path) -> TextExamples:
    """17 windows of six tokens, the last of them padded."""
    return TextExamples(folder, "train", 6, 0)


def cache(folder: Path, output: Path, method: LogitCache, shards: bool = False, stop_after: int = 10**9) -> None:
    """Cache on this rank, in parts of a few examples."""
    import torch.distributed as dist

    from understudy.parallel.apply import Spread
    from understudy.recipe import Degrees

    store = dist.HashStore() if os.environ.get("WORLD_SIZE", "1") == "1" else None  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1) if store else dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    spread = Spread(Degrees(dp_shard=world_size), CPU, torch.float32) if shards else None
    model = load_models({"t": folder}, {"t": read_description(folder)}, CPU, spread)["t"]
    settings = Cached(method, 2.0, 9, 2, CPU, dist.get_rank(), world_size, shards)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if done >= stop_after:
            raise Interrupted

    output.mkdir(exist_ok=True)
    caching.TARGETS_PER_PART = 24, 24
    try:
        cache_logits(model, examples(folder.parent), settings, output, FACTS, advance)
        assert done == 17
    except Interrupted:
        pass
    finally:
        dist.destroy_process_group()


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    np.save(tmp_path / "train.tokens.npy", np.random.default_rng(0).integers(1, 9, 101).astype(np.uint16))
    small.saved(tmp_path / "teacher", small.LLAMA, small.TEXT, 0)
    return tmp_path / "teacher"


@pytest.mark.parametrize("method", [TopK(type="top_k", k=3), Sampled(type="sampled", draws=7)])
def test_the_files_do_not_depend_on_the_ranks(ranks: Ranks, tmp_path: Path, teacher: Path, method: LogitCache) -> None:
    ranks.run(1, cache, teacher, tmp_path / "alone", method)
    expected = digests(tmp_path / "alone")
    assert len(expected) > 6, "several parts"
    for number, (world_size, shards) in enumerate([(2, False), (2, True), (3, False)]):
        ranks.run(world_size, cache, teacher, tmp_path / f"ranks {number}", method, shards)
        assert digests(tmp_path / f"ranks {number}") == expected


def test_what_is_written_before_a_stop_is_not_computed_again(ranks: Ranks, tmp_path: Path, teacher: Path) -> None:
    method = Nucleus(type="nucleus", mass=0.5, most=4)
    ranks.run(1, cache, teacher, tmp_path / "alone", method)
    ranks.run(2, cache, teacher, tmp_path / "stopped", method, *(False, 8))
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped").glob("part-*")}
    assert 0 < len(written) < len(digests(tmp_path / "alone")) - 2
    ranks.run(1, cache, teacher, tmp_path / "stopped", method)
    assert digests(tmp_path / "stopped") == digests(tmp_path / "alone")
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_the_entries_are_those_of_the_model(ranks: Ranks, tmp_path: Path, teacher: Path) -> None:
    ranks.run(1, cache, teacher, tmp_path / "cache", TopK(type="top_k", k=9))
    cached, split = CachedLogits(tmp_path / "cache"), examples(tmp_path)
    assert cached.facts == FACTS
    model = load_models({"t": teacher}, {"t": read_description(teacher)}, CPU, None)["t"]
    inputs, labels = split.batch(np.arange(len(split)))
    with torch.inference_mode():
        expected = torch.log_softmax(model(inputs).logits[labels >= 0] / 2.0, dim=-1)
    found = dense(cached.read(np.arange(len(split))))
    assert (found - expected).abs().max() < 0.16, "the step of their quantisation"
    assert (expected.exp() * (expected - found)).sum(-1).mean() < 1e-3
