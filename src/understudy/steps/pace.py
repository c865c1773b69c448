"""How fast a step goes: the time that is left, and when it is worth a line in the log."""

from dataclasses import dataclass

SAY = 10.0  # seconds between two log lines of a step without another display


@dataclass
class Pace:
    """How fast a step goes, measured from its start or its last restart."""

    _first: tuple[float, float] = (0.0, 0.0)
    _last: float = -1.0
    _said: tuple[float, float] = (0.0, 0.0)

    def left(self, done: float, total: float, now: float) -> float:
        """Seconds that are left at this pace; 0 while that is unknown."""
        if done < self._last or self._last < 0:
            self._first = done, now
        self._last = done
        gone = done - self._first[0]
        return max(0.0, total - done) * (now - self._first[1]) / gone if gone > 0 else 0.0

    def is_worth_a_line(self, now: float) -> bool:
        """Whether the step has moved since the last line, and that is a while ago; then it is the next one."""
        if self._last == self._said[0] or now - self._said[1] < SAY:
            return False
        self._said = self._last, now
        return True
