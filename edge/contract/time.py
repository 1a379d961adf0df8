"""A moment is (boot, monotonic µs); what the wall said then is looked up from the boot (design D12)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Protocol

import msgspec

SECOND = 1_000_000
"""One second in µs, the unit of every duration below the codecs."""


class Stamp(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A moment: which boot of this box, and µs of its monotonic clock."""

    boot: int
    mono_us: int


class Clock(Protocol):
    """Owns time and every timer; virtual time is another Clock."""

    def now(self) -> Stamp:
        """This moment."""
        ...

    def wall(self, at: Stamp) -> tuple[int, int]:
        """µs since 1970 UTC at `at`, and ± µs of what is not known about it."""
        ...

    def at(self, mono_us: int, call: Callable[[], None]) -> Callable[[], None]:
        """Call `call` in the loop once the monotonic clock has reached `mono_us`; the result cancels it."""
        ...

    async def sleep_until(self, mono_us: int) -> None:
        """Return once the monotonic clock of this boot has reached `mono_us`."""
        ...

    def until(self, mono_us: int | None) -> AbstractAsyncContextManager[None]:
        """Bound a block: `TimeoutError` at `mono_us`; None bounds nothing."""
        ...


def later(clock: Clock, us: int, call: Callable[[], None]) -> Callable[[], None]:
    """Call `call` in the loop, `us` from now; the result cancels it."""
    return clock.at(clock.now().mono_us + us, call)


def iso(second: int) -> str:
    """ISO 8601 in UTC of seconds since 1970."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def wall_us(clock: Clock) -> int:
    """µs since 1970 UTC, now."""
    return clock.wall(clock.now())[0]


def wall_ms(clock: Clock) -> int:
    """ms since 1970 UTC, now."""
    return wall_us(clock) // 1000
