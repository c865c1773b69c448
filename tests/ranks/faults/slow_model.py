"""A network with dropout whose every pass takes a while, so that a test can meet a step; and networks that fail."""

import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Blocks of Linear and dropout on the image's pixels; `pause` in seconds per pass."""

    def __init__(self, inputs: int, num_labels: int, width: int, dropout: float, pause: float) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout))
            for _ in range(3)
        )
        self.last = nn.Linear(width, num_labels)
        self._pause = pause
        self.passes = 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += self.training  # the pass before the training, which tries the model, does not count
        time.sleep(self._pause)
        hidden = self.first(images.flatten(1))
        for block in self.blocks:
            hidden = hidden + block(hidden)
        logits: Tensor = self.last(hidden)
        return logits


class _Residual(nn.Module):
    """A slow block, which adds to its input."""

    def __init__(self, width: int, pause: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
        self._pause = pause

    def forward(self, hidden: Tensor) -> Tensor:
        time.sleep(self._pause)
        changed: Tensor = self.inner(hidden)
        return hidden + changed


class _Chain(nn.Module):
    """Blocks that follow one another, which can be cut into stages."""

    def __init__(self, inputs: int, num_labels: int, width: int, pause: float) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(_Residual(width, pause) for _ in range(4))
        self.last = nn.Linear(width, num_labels)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images.flatten(1))
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.last(hidden)
        return logits


def chain(num_labels: int, image_size: int, num_channels: int, width: int = 64, pause: float = 0.01) -> nn.Module:
    return _Chain(num_channels * image_size**2, num_labels, width, pause)


def build(
    num_labels: int, image_size: int, num_channels: int, width: int = 128, dropout: float = 0.1, pause: float = 0.02
) -> nn.Module:
    return Net(num_channels * image_size**2, num_labels, width, dropout, pause)


def raises(num_labels: int) -> nn.Module:
    raise RuntimeError(f"no weights for {num_labels} labels,\nnot today")


def _sign_path(sign: str) -> Path:
    """A sign's path: in the job's folder, which a rank is told to read its job from, unless it says where."""
    return Path(sys.argv[-1]).parent / sign


class _Faulty(nn.Module, ABC):
    """Does something at a training step on one rank, once: `sign` is a file that is there when it was done."""

    def __init__(self, net: Net, at: int, rank: int, sign: str) -> None:
        super().__init__()
        self.net, self._at, self._rank, self._sign = net, at, rank, _sign_path(sign)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        if self.net.passes == self._at and self._rank == int(os.environ["RANK"]) and not self._sign.exists():
            self._sign.touch()
            return self.fault(logits)
        return logits

    @abstractmethod
    def fault(self, logits: Tensor) -> Tensor:
        """The fault at that pass."""


class _Nan(_Faulty):
    def fault(self, logits: Tensor) -> Tensor:
        return logits * torch.nan


class _Killed(_Faulty):
    def fault(self, logits: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return logits


class _Confused(_Faulty):
    def fault(self, logits: Tensor) -> Tensor:
        raise ValueError("lost the thread")


def nan(num_labels: int, image_size: int, num_channels: int, at: int, rank: int, sign: str) -> nn.Module:
    return _Nan(Net(num_channels * image_size**2, num_labels, 32, 0.1, 0.04), at, rank, sign)


def killed(num_labels: int, image_size: int, num_channels: int, at: int, rank: int, sign: str) -> nn.Module:
    return _Killed(Net(num_channels * image_size**2, num_labels, 32, 0.1, 0.04), at, rank, sign)


def confused(num_labels: int, image_size: int, num_channels: int, at: int, rank: int, sign: str) -> nn.Module:
    return _Confused(Net(num_channels * image_size**2, num_labels, 32, 0.1, 0.04), at, rank, sign)


class _Hung(_Faulty):
    def fault(self, logits: Tensor) -> Tensor:
        time.sleep(3600)
        return logits


class _Greedy(_Faulty):
    def fault(self, logits: Tensor) -> Tensor:
        bytes_held = [torch.ones(2**25) for _ in range(64)]  # 128 MiB each
        return logits + 0 * bytes_held[0].sum()


def hangs(num_labels: int, image_size: int, num_channels: int, at: int, rank: int, sign: str) -> nn.Module:
    return _Hung(Net(num_channels * image_size**2, num_labels, 32, 0.1, 0.04), at, rank, sign)


def greedy(num_labels: int, image_size: int, num_channels: int, at: int, rank: int, sign: str) -> nn.Module:
    return _Greedy(Net(num_channels * image_size**2, num_labels, 32, 0.1, 0.04), at, rank, sign)


def dies_last(num_labels: int, image_size: int, num_channels: int, how: str, rank: int, sign: str) -> nn.Module:
    """A rank that ends badly when all its work is done and the others have said so; once, if it is killed."""
    if rank == int(os.environ.get("RANK", "-1")) and not _sign_path(sign).exists():
        torch.distributed.destroy_process_group = lambda: _at_the_end(how, sign)
    return Net(num_channels * image_size**2, num_labels, 32, 0.1, 0.02)


def _at_the_end(how: str, sign: str) -> None:
    time.sleep(5)  # until the others have ended
    if how == "raised":
        raise ValueError("at the very end")
    _sign_path(sign).touch()
    os.kill(os.getpid(), signal.SIGKILL)
