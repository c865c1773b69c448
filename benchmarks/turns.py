"""Training loops that take turns within one process: each in a thread of its own, some steps at a time.

A loop is not changed for it. Whoever takes a step calls an optimiser's step(), and torch calls a hook after each: there
the clock is read, and there a loop waits until it is its turn again. Times of one round lie seconds apart, so what else
the machine does meanwhile meets all of them.
"""

import os
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook


class Turns:
    """Whose turn it is, and how long their steps took.

    Args:
        names: of the loops, in their order; the last one is the main thread's.
        steps: that each loop takes in all.
        turn: steps of a turn. The first is not counted: it finds the caches full of another loop's tensors.
    """

    def __init__(self, names: list[str], steps: int, turn: int) -> None:
        self._names, self._steps, self._turn = names, steps, turn
        self._now, self._condition = 0, threading.Condition()
        self._local = threading.local()
        self.seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        """Of each loop, a step's mean time and CPU time in each of its turns but the first, in which it starts."""
        register_optimizer_step_post_hook(self._after_step)

    def start(self, loops: dict[str, Callable[[], None]]) -> None:
        """Let every loop but the main thread's wait for its turn."""
        for name, loop in loops.items():
            threading.Thread(target=self._take_part, args=(name, loop), daemon=True).start()

    def _take_part(self, name: str, loop: Callable[[], None]) -> None:
        try:
            self.join(name)
            loop()
            self.leave()
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # the other loops would wait for ever

    def join(self, name: str) -> None:
        """Take part from now on under this name, in this thread; waits for the first turn."""
        self._local.name, self._local.taken, self._local.paused = name, 0, 0.0
        self._wait()

    def own_time(self) -> float:
        """Seconds that go on in this thread's turns alone, for a loop that looks at its own pace."""
        return time.perf_counter() - getattr(self._local, "paused", 0.0)

    def leave(self) -> None:
        """Take no more steps."""
        self._pass_on()

    def _wait(self) -> None:
        start = time.perf_counter()
        with self._condition:
            self._condition.wait_for(lambda: self._names[self._now] == self._local.name)
        self._local.paused += time.perf_counter() - start

    def _pass_on(self) -> None:
        with self._condition:
            self._now = (self._now + 1) % len(self._names)
            self._condition.notify_all()

    def _after_step(self, *_: Any) -> None:
        now, local = (time.perf_counter(), time.process_time()), self._local
        if not hasattr(local, "name") or local.taken == self._steps:
            return  # no step of a loop: an optimiser that is being made
        local.taken += 1
        turn = (local.taken - 1) % self._turn
        if turn == 0:
            local.since = now
        if turn == self._turn - 1:
            if local.taken > self._turn:
                wall, busy = ((end - start) / turn for end, start in zip(now, local.since, strict=True))
                self.seconds[local.name].append((wall, busy))
            self._pass_on()
            self._wait()
