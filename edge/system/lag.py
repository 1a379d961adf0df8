"""How late the loop is: a tick that asks for a moment and sees when it comes."""

from __future__ import annotations

from collections.abc import Callable

from edge.contract.time import SECOND, Clock

TICK_US = SECOND


class LoopLag:
    """Measures loop lag once a second. `last_us` is the newest figure, `worst_us` the largest of the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = [0] * 60
        self._turn = 0
        self._due = 0
        self._cancel: Callable[[], None] = lambda: None

    @property
    def last_us(self) -> int:
        """The newest figure, µs."""
        return self._seen[(self._turn - 1) % len(self._seen)]

    @property
    def worst_us(self) -> int:
        """The largest of the last minute, µs."""
        return max(self._seen)

    def start(self) -> None:
        """Begin ticking."""
        self._due = self._clock.now().mono_us + TICK_US
        self._cancel = self._clock.at(self._due, self._tick)

    def stop(self) -> None:
        """End ticking."""
        self._cancel()

    def _tick(self) -> None:
        self._seen[self._turn % len(self._seen)] = max(0, self._clock.now().mono_us - self._due)
        self._turn += 1
        self.start()
