"""Virtual time: a `Clock` that moves only when told to."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from edge.contract.time import SECOND, Stamp
from edge.system.clock import until

EPOCH_US = 1_750_000_000 * SECOND
"""What the wall says at mono 0 of a FakeClock (June 2025)."""


class FakeClock:
    """`Clock` with time in the test's hands. Timers run inside `advance`, in order, each at its own moment."""

    def __init__(self, boot: int = 1, mono_us: int = SECOND, wall_at_zero_us: int = EPOCH_US) -> None:
        self.boot = boot
        self.mono_us = mono_us
        self.wall_at_zero_us = wall_at_zero_us
        self.uncertainty_us = 0
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._count = 0

    def now(self) -> Stamp:
        return Stamp(self.boot, self.mono_us)

    def wall(self, at: Stamp) -> tuple[int, int]:
        return self.wall_at_zero_us + at.mono_us, self.uncertainty_us

    def at(self, mono_us: int, call: Callable[[], None]) -> Callable[[], None]:
        self._count += 1
        number = self._count
        heapq.heappush(self._timers, (mono_us, number, call))
        if mono_us <= self.mono_us:
            asyncio.get_running_loop().call_soon(self.advance_to, self.mono_us)
        return lambda: self._cancelled.add(number)

    async def sleep_until(self, mono_us: int) -> None:
        if mono_us <= self.mono_us:
            await asyncio.sleep(0)
            return
        reached = asyncio.Event()
        cancel = self.at(mono_us, reached.set)
        try:
            await reached.wait()
        finally:
            cancel()

    def until(self, mono_us: int | None) -> AbstractAsyncContextManager[None]:
        return until(self.at, mono_us)

    def advance(self, us: int) -> None:
        """Let `us` pass; every timer that falls due runs now, those that it starts included."""
        self.advance_to(self.mono_us + us)

    def advance_to(self, mono_us: int) -> None:
        """Let time pass up to a moment."""
        while self._timers and self._timers[0][0] <= mono_us:
            due, number, call = heapq.heappop(self._timers)
            if number in self._cancelled:
                self._cancelled.discard(number)
                continue
            self.mono_us = max(self.mono_us, due)
            call()
        self.mono_us = max(self.mono_us, mono_us)

    async def pass_(self, us: int, turns: int = 5) -> None:
        """`advance`, timer by timer, and let the loop turn after each so that sleepers go on."""
        end = self.mono_us + us
        await turn(turns)
        while (due := self.next_timer()) is not None and due <= end:
            self.advance_to(due)
            await turn(turns)
        self.advance_to(end)
        await turn(turns)

    async def awaited(self, mono_us: int) -> None:
        """Let the loop run until something waits for this very moment."""
        async with asyncio.timeout(60):
            while not any(due == mono_us and number not in self._cancelled for due, number, _ in self._timers):
                await asyncio.sleep(0.001)

    def next_timer(self) -> int | None:
        """When the next timer falls due; None without timers."""
        while self._timers and self._timers[0][1] in self._cancelled:
            self._cancelled.discard(heapq.heappop(self._timers)[1])
        return self._timers[0][0] if self._timers else None


async def turn(times: int = 5) -> None:
    """Let the loop turn, so that what is ready runs."""
    for _ in range(times):
        await asyncio.sleep(0)
