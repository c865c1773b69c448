"""The sizes in the tables: student and teacher of an 8B/1B pair, cut to four layers; or a toy, to try the commands."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Model = dict[str, Any]


def llama(width: int, layers: int, heads: int, inner: int, length: int) -> Model:
    """A Llama whose heads share keys by four."""
    sizes = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers}
    heads_of = {"num_attention_heads": heads, "num_key_value_heads": heads // 4}
    return {"type": "llama", "config": {**sizes, **heads_of, "max_position_embeddings": length}}


@dataclass(frozen=True)
class Sizes:
    """Of models and batches, and where they are computed."""

    device: str
    vocabulary: int
    batch: int
    length: int
    student: Model
    teacher: Model
    small: Model
    """Bound by launches on a GPU: the size of an example recipe's student."""
    medium: Model
    """Whose checkpoints are a few GB."""

    @property
    def positions(self) -> int:
        """Tokens of a batch."""
        return self.batch * self.length


FULL = Sizes(
    device="cuda",
    vocabulary=128_256,
    batch=4,
    length=2_048,
    student=llama(2048, 4, 32, 8192, 2_048),
    teacher=llama(4096, 4, 32, 14336, 2_048),
    small=llama(256, 4, 4, 1024, 2_048),
    medium=llama(1024, 8, 8, 4096, 2_048),
)
TINY = Sizes(
    device="cpu",
    vocabulary=512,
    batch=2,
    length=32,
    student=llama(64, 2, 4, 128, 32),
    teacher=llama(128, 2, 4, 256, 32),
    small=llama(32, 2, 4, 64, 32),
    medium=llama(64, 2, 4, 128, 32),
)


def milliseconds(work: Callable[[], object], device: str, repeats: int = 10, warm_up: int = 3) -> float:
    """Median time of some work, until the device is done with it."""
    times = []
    for _ in range(warm_up + repeats):
        begun = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times[warm_up:])


def mebibytes(work: Callable[[], object], device: str) -> float:
    """The peak memory that some work allocates, in bytes above the start; NaN where it is not counted."""
    if device != "cuda":
        return float("nan")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    return (torch.cuda.max_memory_allocated() - before) / 2**20
