"""Time of the box and every timer (design D12, D17). The only module that waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from edge.contract.time import SECOND, Stamp
from edge.system.walltime import BUILD_US, UNSURE_US, Belief, Read, judge, read_system


def boottime_us() -> int:
    """µs since this kernel started, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class SystemClock:
    """`edge.contract.time.Clock` on the kernel's clocks. Timers in the loop; `now` and `wall` in any thread.

    `sure` says whether something vouches for the wall time; while it is not, `wall` is a guess with an uncertainty
    of 100 years that never lies below the floor, and certificates are issued as of `floor_us`.
    """

    def __init__(self, boot: int, *, floor_us: int = BUILD_US, read: Read = read_system) -> None:
        self.boot = boot
        self.floor_us = max(floor_us, BUILD_US)
        self.earlier: dict[int, Belief] = {}
        """What is known of the boots before this one; filled from the table `boot`."""
        self._read = read
        self._hints: dict[str, int] = {}
        self.belief = judge(read(), boottime_us(), self.floor_us)

    @property
    def sure(self) -> bool:
        """Is the wall time of this boot known?"""
        return self.belief.sure

    def now(self) -> Stamp:
        return Stamp(self.boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)

    def wall(self, at: Stamp) -> tuple[int, int]:
        belief = self.belief if at.boot == self.boot else self.earlier.get(at.boot)
        if belief is None:
            return self.floor_us, UNSURE_US
        return at.mono_us + belief.offset_us, belief.uncertainty_us

    def relearn(self) -> bool:
        """Look at the system's clock again; True if what is believed has changed by over a second."""
        mono_us = boottime_us()
        others = tuple(offset + mono_us for offset in self._hints.values())
        fresh = judge(self._read(), mono_us, self.floor_us, others)
        old = self.belief
        if not fresh.sure and (old.sure or fresh.offset_us < old.offset_us):
            return False
        self.belief = fresh
        if fresh.sure:
            self.raise_floor(mono_us + fresh.offset_us - fresh.uncertainty_us)
        return fresh.sure != old.sure or abs(fresh.offset_us - old.offset_us) > SECOND

    def adopt(self, belief: Belief) -> None:
        """What an earlier process of this very boot believed: better than a guess, and a guess never goes back."""
        if not self.belief.sure:
            self.belief = belief if belief.sure else max(self.belief, belief, key=lambda b: b.offset_us)

    def raise_floor(self, wall_us: int) -> None:
        """No true time lies before `wall_us` (restored state, the last sure time)."""
        self.floor_us = max(self.floor_us, wall_us)

    def hint(self, source: str, wall_us: int) -> None:
        """An authenticated other says what time it is; it can confirm a large jump, never make one."""
        self._hints[source] = wall_us - boottime_us()

    def at(self, mono_us: int, call: Callable[[], None]) -> Callable[[], None]:
        return _Timer(asyncio.get_running_loop(), mono_us, call).cancel

    async def sleep_until(self, mono_us: int) -> None:
        reached = asyncio.Event()
        cancel = self.at(mono_us, reached.set)
        try:
            await reached.wait()
        finally:
            cancel()

    def until(self, mono_us: int | None) -> AbstractAsyncContextManager[None]:
        return until(self.at, mono_us)


class _Timer:
    """A call at a moment of the boot clock. The loop's clock leaves out sleep, so it looks again when it fires."""

    def __init__(self, loop: asyncio.AbstractEventLoop, mono_us: int, call: Callable[[], None]) -> None:
        self._loop, self._mono_us, self._call = loop, mono_us, call
        self._arm()

    def _arm(self) -> None:
        self._handle = self._loop.call_later(max(0, self._mono_us - boottime_us()) / SECOND, self._fire)

    def _fire(self) -> None:
        if boottime_us() < self._mono_us:
            self._arm()
        else:
            self._call()

    def cancel(self) -> None:
        self._handle.cancel()


@asynccontextmanager
async def until(
    at: Callable[[int, Callable[[], None]], Callable[[], None]], mono_us: int | None
) -> AsyncIterator[None]:
    """Bound a block by a timer of `at`: `asyncio.timeout` without a time of its own. For every Clock."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as bound:
        cancel = at(mono_us, lambda: bound.reschedule(loop.time())) if mono_us is not None else None
        try:
            yield
        finally:
            if cancel is not None:
                cancel()
