"""A step's pace: the remaining time, and when to log its progress."""

from dataclasses import dataclass

SAY = 10.0  # seconds between log lines of a step without another display


@dataclass
class Pace:
    """A step's pace, measured from its start or its last restart."""

    _first: tuple[float, float] = (0.0, 0.0)
    _last: float = -1.0
    _logged: tuple[float, float] = (0.0, 0.0)

    def left(self, done: float, total: float, now: float) -> float:
        """Remaining seconds at this pace; 0 while unknown."""
        if done < self._last or self._last < 0:
            self._first = done, now
        self._last = done
        progress = done - self._first[0]
        return max(0.0, total - done) * (now - self._first[1]) / progress if progress > 0 else 0.0

    def is_worth_a_line(self, now: float) -> bool:
        """Whether to log a line: after progress, SAY seconds after the last line. True counts as logged."""
        if self._last == self._logged[0] or now - self._logged[1] < SAY:
            return False
        self._logged = self._last, now
        return True
