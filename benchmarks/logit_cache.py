"""Cached logits beside Parquet files of the same entries: bytes, what quantisation adds, and random reads.

python -m benchmarks.logit_cache [--tokens TOKENS.npy --weights WEIGHTS.pt] [--rounds 20]

Without arguments the teacher is a Zipf mixture; with them, a transformer of benchmarks.logit_teacher. Tables are fitted
to 128 examples of 128 positions, and everything is measured on 96 others. Parquet has columns of lists, int32 ids and
float16 values, with zstd: once as pyarrow writes it by default, once with a row group for each example. For reads, the
examples are repeated to 768, so that the default's one row group has 98,304 positions (pyarrow closes it at 1,048,576).
A read takes 16 random examples; the readers take turns.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.logit_teacher import LENGTH, transformer, zipf_mixture
from understudy.teachers.cache.parts import begin, finish, write_part
from understudy.teachers.cache.reader import CachedLogits
from understudy.teachers.cache.sparse import Sparse, dense, kl, nucleus, sampled, top_k
from understudy.teachers.cache.tables import Tables

FITTED, MEASURED, REPEATED, READ = 128, 96, 8, 16
Reduce = Callable[[Tensor, int], Sparse]


def draw(draws: int) -> Reduce:
    return lambda log_probs, example: sampled(log_probs, draws, example * LENGTH + np.arange(LENGTH))


METHODS: dict[str, tuple[int, Reduce]] = {
    "top-k 50": (0, lambda log_probs, _: top_k(log_probs, 50)),
    "top-k 128": (0, lambda log_probs, _: top_k(log_probs, 128)),
    "nucleus 0.95, 200 at most": (0, lambda log_probs, _: nucleus(log_probs, 0.95, 200)),
    "12 draws": (12, draw(12)),
    "50 draws": (50, draw(50)),
}


def joined(parts: list[Sparse]) -> Sparse:
    ids, log_probs = torch.cat([part.ids for part in parts]), torch.cat([part.log_probs for part in parts])
    return Sparse(ids, log_probs, torch.cat([part.tail for part in parts]), parts[0].vocabulary)


def parquet(path: Path, sparse: Sparse, **options: Any) -> pq.ParquetFile:
    used = sparse.ids.numpy() >= 0
    offsets = pa.array(np.append(0, np.cumsum(used.sum(axis=1))).astype(np.int32))
    ids = pa.array(sparse.ids.numpy()[used].astype(np.int32))
    values = pa.array(sparse.log_probs.numpy()[used].astype(np.float16))
    columns = {
        "ids": pa.ListArray.from_arrays(offsets, ids),
        "values": pa.ListArray.from_arrays(offsets, values),
        "tail": pa.array(sparse.tail.numpy().astype(np.float16)),
    }
    pq.write_table(pa.table(columns), path, compression="zstd", **options)
    return pq.ParquetFile(path, memory_map=True)


def read_parquet(file: pq.ParquetFile, examples: NDArray[np.int64]) -> None:
    """Numpy arrays of the examples' entries, from the row groups that have them."""
    by_group = file.metadata.num_row_groups == REPEATED * MEASURED
    groups = examples.tolist() if by_group else list(range(file.metadata.num_row_groups))
    table = file.read_row_groups(groups, use_threads=False)
    if not by_group:
        table = table.take(pa.array((examples[:, None] * LENGTH + np.arange(LENGTH)).ravel()))
    for name in ("ids", "values"):
        table[name].combine_chunks().flatten().to_numpy()


def read_times(readers: dict[str, Callable[[NDArray[np.int64]], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of random reads, in turns."""
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(rounds):
        examples = rng.choice(REPEATED * MEASURED, READ, replace=False)
        for name, read in readers.items():
            began = time.perf_counter()
            read(examples)
            times[name].append(1e3 * (time.perf_counter() - began))
    return times


def print_divergences(log_probs: Callable[[int], Tensor], cached: CachedLogits, reduce: Reduce, draws: int) -> None:
    """Nats, over 16 examples: what quantisation adds, and what was lost in all; or the variance of draws."""
    added, lost, variance = [], [], []
    for example in range(READ):
        teacher = log_probs(FITTED + example)
        before, after = reduce(teacher, FITTED + example), cached.read(np.array([example]))
        added.append(kl(dense(before), after))
        lost.append(kl(teacher, after))
        variance.append(1 - teacher.double().exp().square().sum(-1))
    quantised = f"quantisation adds {torch.cat(added).mean():.6f} nats, {torch.cat(added).max():.6f} at most"
    if draws:
        print(f"    {quantised}; variance, summed over classes: {torch.cat(variance).mean() / draws:.4f}")
    else:
        print(f"    {quantised}; KL(teacher || cached): {torch.cat(lost).mean():.4f}")


def cache(folder: Path, sparse: Sparse, tables: Tables) -> CachedLogits:
    """A folder of cached logits with one part."""
    examples = len(sparse.ids) // LENGTH
    begin(folder, tables, examples)
    write_part(folder, 0, np.full(examples, LENGTH), sparse, tables)
    finish(folder, {})
    return CachedLogits(folder)


def size(path: Path, sparse: Sparse) -> float:
    """Bytes a position, without the tables."""
    files = [path] if path.is_file() else path.glob("part-*")
    return sum(file.stat().st_size for file in files) / len(sparse.ids)


PARQUET: dict[str, dict[str, Any]] = {
    "default": {},
    "a group each": {"row_group_size": LENGTH, "use_dictionary": False},
}


def measure(name: str, log_probs: Callable[[int], Tensor], rounds: int, folder: Path) -> None:
    draws, reduce = METHODS[name]
    parts = [reduce(log_probs(example), example) for example in range(FITTED + MEASURED)]
    tables = Tables.fit(parts[:FITTED], draws=draws)
    sparse, repeated = joined(parts[FITTED:]), joined(parts[FITTED:] * REPEATED)
    cached = cache(folder / "logits", sparse, tables)
    ours = size(folder / "logits", sparse)
    print(f"{name}: {cached.statistics['mean_entries']:.1f} entries, {ours:.1f} bytes a position")
    print_divergences(log_probs, cached, reduce, draws)
    readers: dict[str, Callable[[NDArray[np.int64]], object]] = {
        "ours": cache(folder / "repeated", repeated, tables).read
    }
    for kind, options in PARQUET.items():
        parquet(folder / kind, sparse, **options)
        file = parquet(folder / f"{kind} repeated", repeated, **options)
        readers[kind] = partial(read_parquet, file)
    times = read_times(readers, rounds)
    for kind in PARQUET:
        others = size(folder / kind, sparse)
        ratios = [other / own for other, own in zip(times[kind], times["ours"], strict=True)]
        print(
            f"    Parquet, {kind}: {others:.1f} bytes, {others / ours:.2f} times ours; a read takes"
            f" {min(times[kind]) / min(times['ours']):.2f} / {statistics.median(ratios):.2f} times ours"
            f" ({min(times[kind]):.1f} and {min(times['ours']):.1f} ms)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    log_probs = transformer(options.tokens, options.weights) if options.weights else zipf_mixture()
    for name in METHODS:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, log_probs, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
