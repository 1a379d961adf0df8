"""What the wall clock can be believed (design D12): a Pi has no RTC and starts in the past, or in 1970.

Sure is what a synchronised kernel says, if it lies above the floor. The floor is the newest of the build date, the
last sure time and restored state; an unsure time never raises it. A sure time more than a year above the floor
needs a second source (a hardware clock, an authenticated peer) that agrees within a day.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from edge.contract.time import SECOND

DAY = 86_400 * SECOND
YEAR = 365 * DAY
BUILD_US = 1_767_225_600 * SECOND
"""No true clock shows less than this release's year (2026-01-01)."""
UNSURE_US = 100 * YEAR
"""± of a wall time that nothing vouches for."""

_RTC = Path("/sys/class/rtc/rtc0/since_epoch")
_TIMESYNCD = Path("/run/systemd/timesync/synchronized")
_STA_UNSYNC = 0x40
_TIME_ERROR = 5


class Reading(msgspec.Struct, frozen=True):
    """What the system's clocks say at one moment: µs since 1970, ± µs, does the kernel follow a time server."""

    wall_us: int
    uncertainty_us: int
    synchronised: bool
    rtc_us: int | None = None


class Belief(msgspec.Struct, frozen=True):
    """What we make of it: wall = monotonic + `offset_us`, ± `uncertainty_us`."""

    offset_us: int
    uncertainty_us: int
    sure: bool


class _Timex(ctypes.Structure):
    """The head of `struct timex`; the rest is padding that the kernel may fill."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def read_system() -> Reading:
    """Ask the kernel. Never raises: what cannot be learnt counts as unsynchronised."""
    synchronised, error_us = _adjtimex()
    if not synchronised and _TIMESYNCD.exists():
        synchronised, error_us = True, SECOND
    return Reading(time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000, error_us, synchronised, _rtc())


def _adjtimex() -> tuple[bool, int]:
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return False, UNSURE_US
    good = state not in (-1, _TIME_ERROR) and not timex.status & _STA_UNSYNC
    return good, max(1_000, timex.maxerror) if good else UNSURE_US


def _rtc() -> int | None:
    try:
        return int(_RTC.read_text()) * SECOND
    except (OSError, ValueError):
        return None


def judge(reading: Reading, mono_us: int, floor_us: int, others_us: tuple[int, ...] = ()) -> Belief:
    """What to believe, given the floor and what other sources say the time is now."""
    wall = reading.wall_us
    if reading.synchronised and wall >= floor_us:
        others = (*others_us, *(() if reading.rtc_us is None else (reading.rtc_us,)))
        if wall <= floor_us + YEAR or any(abs(other - wall) <= DAY for other in others):
            return Belief(wall - mono_us, reading.uncertainty_us, True)
    return Belief(max(wall, floor_us) - mono_us, UNSURE_US, False)


Read = Callable[[], Reading]
"""The seam for tests: `read_system`, or what they say instead."""
