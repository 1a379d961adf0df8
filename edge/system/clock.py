"""Time of the box and every timer (design D12, D17). The only module that reads a clock or sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from edge.contract.time import SECOND, Stamp

UNKNOWN = 100 * 365 * 86_400 * SECOND
"""The uncertainty of a boot about whose wall time nothing is known."""


def boottime_us() -> int:
    """µs since this kernel started, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class SystemClock:
    """`edge.contract.time.Clock` on the kernel's clocks. Use in the loop; `now` and `wall` in any thread."""

    def __init__(self, boot: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.boot = boot
        self._loop = loop
        self._offset_us = time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000 - boottime_us()
        self._uncertainty_us = SECOND

    def now(self) -> Stamp:
        return Stamp(self.boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)

    def wall(self, at: Stamp) -> tuple[int, int]:
        return at.mono_us + self._offset_us, self._uncertainty_us

    def at(self, mono_us: int, call: Callable[[], None]) -> Callable[[], None]:
        return _Timer(self._loop or asyncio.get_running_loop(), mono_us, call).cancel

    async def sleep_until(self, mono_us: int) -> None:
        reached = asyncio.Event()
        cancel = self.at(mono_us, reached.set)
        try:
            await reached.wait()
        finally:
            cancel()

    def until(self, mono_us: int | None) -> AbstractAsyncContextManager[None]:
        return _until(self.at, mono_us)


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
async def _until(
    at: Callable[[int, Callable[[], None]], Callable[[], None]], mono_us: int | None
) -> AsyncIterator[None]:
    """Bound a block by a timer of ours: `asyncio.timeout` without a time of its own."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as bound:
        cancel = at(mono_us, lambda: bound.reschedule(loop.time())) if mono_us is not None else None
        try:
            yield
        finally:
            if cancel is not None:
                cancel()


until = _until
"""For other clocks: `until(self.at, mono_us)`."""
