"""Time and timers of the box, and that virtual time keeps the same promises."""

from __future__ import annotations

import asyncio
import time

import pytest

from edge.contract.time import SECOND, Clock
from edge.system.clock import SystemClock
from edge.system.walltime import BUILD_US, DAY, UNSURE_US, YEAR, Belief, Reading
from tests.support.clock import FakeClock, turn


def system(reading: Reading | None = None) -> SystemClock:
    return SystemClock(3, read=lambda: reading or Reading(BUILD_US + DAY, 1_000, True))


def test_now_is_the_boot_and_microseconds_that_only_grow() -> None:
    clock = system()
    first = clock.now()
    assert first.boot == 3
    assert abs(first.mono_us - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000) < SECOND
    assert clock.now() >= first


def test_a_sure_clock_stays_sure_and_does_not_fall_back_to_a_guess() -> None:
    readings = [Reading(BUILD_US + DAY, 1_000, True)]
    clock = SystemClock(1, read=lambda: readings[-1])
    readings.append(Reading(0, 1_000, False))
    assert not clock.relearn()
    assert clock.sure


def test_becoming_sure_or_moving_over_a_second_is_a_change() -> None:
    readings = [Reading(0, 1_000, False)]
    clock = SystemClock(1, read=lambda: readings[-1])
    assert (clock.sure, clock.wall(clock.now())[1]) == (False, UNSURE_US)
    readings.append(Reading(BUILD_US + DAY, 1_000, True))
    assert clock.relearn()
    assert abs(clock.floor_us - BUILD_US - DAY) < 2 * SECOND
    assert not clock.relearn()
    readings.append(Reading(BUILD_US + DAY + 60 * SECOND, 1_000, True))
    assert clock.relearn()


def test_a_guess_never_goes_back() -> None:
    readings = [Reading(BUILD_US + DAY, 1_000, False)]
    clock = SystemClock(1, read=lambda: readings[-1])
    before = clock.wall(clock.now())[0]
    readings.append(Reading(0, 1_000, False))
    assert not clock.relearn()
    assert clock.wall(clock.now())[0] >= before
    clock.adopt(Belief(0, UNSURE_US, False))
    assert clock.wall(clock.now())[0] >= before


def test_what_this_boot_believed_before_a_restart_is_better_than_a_guess() -> None:
    clock = system(Reading(0, 1_000, False))
    clock.adopt(Belief(BUILD_US + 5 * DAY, 2_000, True))
    assert clock.sure
    clock.adopt(Belief(0, 1, False))
    assert clock.belief == Belief(BUILD_US + 5 * DAY, 2_000, True)


def test_a_peer_confirms_a_large_jump_but_makes_none() -> None:
    far = Reading(BUILD_US + 3 * YEAR, 1_000, True)
    clock = SystemClock(1, read=lambda: far)
    assert not clock.sure
    clock.hint("upstream", far.wall_us)
    assert clock.relearn()
    assert clock.sure
    unsure = SystemClock(1, read=lambda: Reading(0, 1_000, False))
    unsure.hint("upstream", far.wall_us)
    unsure.relearn()
    assert not unsure.sure


async def test_timers_fire_when_due_and_not_when_cancelled() -> None:
    clock = system()
    fired: list[str] = []
    start = clock.now().mono_us
    clock.at(start + 5_000, lambda: fired.append("a"))
    clock.at(start - 5_000, lambda: fired.append("past"))
    cancel = clock.at(start + 1_000, lambda: fired.append("no"))
    cancel()
    await clock.sleep_until(start + 10_000)
    assert clock.now().mono_us >= start + 10_000
    assert fired == ["past", "a"]
    cancel()


@pytest.mark.parametrize("virtual", [False, True])
async def test_a_bounded_block_ends_with_a_timeout(virtual: bool) -> None:
    clock: Clock = FakeClock() if virtual else system()
    due = clock.now().mono_us + 2_000

    async def endless() -> None:
        async with clock.until(due):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(endless())
    if isinstance(clock, FakeClock):
        await clock.pass_(2_000)
    with pytest.raises(TimeoutError):
        await task
    assert clock.now().mono_us >= due


@pytest.mark.parametrize("virtual", [False, True])
async def test_a_block_that_ends_in_time_leaves_no_timer(virtual: bool) -> None:
    clock: Clock = FakeClock() if virtual else system()
    async with clock.until(clock.now().mono_us + SECOND):
        await asyncio.sleep(0)
    async with clock.until(None):
        await asyncio.sleep(0)
    if isinstance(clock, FakeClock):
        assert clock.next_timer() is None


async def test_virtual_time_runs_timers_in_order_each_at_its_moment() -> None:
    clock = FakeClock(mono_us=0)
    seen: list[tuple[str, int]] = []
    clock.at(20, lambda: seen.append(("b", clock.mono_us)))

    def again() -> None:
        clock.at(15, lambda: seen.append(("a", clock.mono_us)))

    clock.at(10, again)
    cancel = clock.at(12, lambda: seen.append(("no", 0)))
    cancel()
    clock.advance(30)
    assert seen == [("a", 15), ("b", 20)]
    assert (clock.mono_us, clock.next_timer()) == (30, None)


async def test_virtual_time_wakes_sleepers_at_their_moments() -> None:
    clock = FakeClock(mono_us=0)
    woke: list[int] = []

    async def sleeper() -> None:
        for _ in range(3):
            await clock.sleep_until(clock.mono_us + 10)
            woke.append(clock.mono_us)
        await clock.sleep_until(0)

    task = asyncio.ensure_future(sleeper())
    await turn()
    await clock.pass_(100)
    await task
    assert woke == [10, 20, 30]
