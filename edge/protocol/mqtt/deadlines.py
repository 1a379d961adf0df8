"""Moments at which a machine wants to look again. No clock here: the owner asks `next` and calls `run`."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Deadline:
    """One appointment; `cancel` forgets it and what it refers to."""

    __slots__ = ("call", "mono_us", "order")

    def __init__(self, mono_us: int, order: int, call: Callable[[], None]) -> None:
        self.mono_us, self.order = mono_us, order
        self.call: Callable[[], None] | None = call

    def __lt__(self, other: Deadline) -> bool:
        return (self.mono_us, self.order) < (other.mono_us, other.order)


class Deadlines:
    """Appointments in order of time, then of making."""

    def __init__(self) -> None:
        self._heap: list[Deadline] = []
        self._made = 0
        self._cancelled = 0

    def at(self, mono_us: int, call: Callable[[], None]) -> Deadline:
        """Call `call` in the `run` that reaches `mono_us`."""
        self._made += 1
        deadline = Deadline(mono_us, self._made, call)
        heapq.heappush(self._heap, deadline)
        return deadline

    def cancel(self, deadline: Deadline | None) -> None:
        """Forget an appointment, kept or not."""
        if deadline is None or deadline.call is None:
            return
        deadline.call = None
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [kept for kept in self._heap if kept.call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next(self) -> int | None:
        """When the next appointment is."""
        while self._heap and self._heap[0].call is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0].mono_us if self._heap else None

    def run(self, now_us: int) -> None:
        """Keep every appointment up to now."""
        while (due := self.next()) is not None and due <= now_us:
            deadline = heapq.heappop(self._heap)
            call, deadline.call = deadline.call, None
            assert call is not None  # noqa: S101 - `next` has removed the cancelled
            call()
