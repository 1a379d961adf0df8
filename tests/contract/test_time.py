from __future__ import annotations

from edge.contract.time import SECOND, Stamp, iso, later, wall_ms, wall_us
from tests.support.clock import FakeClock


def test_moments_of_one_boot_are_ordered_and_boots_come_first() -> None:
    assert Stamp(1, 5) < Stamp(1, 6) < Stamp(2, 0)


def test_a_date_is_written_in_utc() -> None:
    assert iso(0) == "1970-01-01T00:00:00Z"
    assert iso(1_767_225_600) == "2026-01-01T00:00:00Z"


def test_wall_time_is_now_in_the_unit_asked_for() -> None:
    clock = FakeClock()
    first = wall_us(clock)
    clock.advance(2 * SECOND)
    assert wall_us(clock) - first == 2 * SECOND
    assert wall_ms(clock) == wall_us(clock) // 1000


def test_what_is_to_come_later_comes_then_unless_it_is_cancelled() -> None:
    clock, came = FakeClock(), []
    later(clock, SECOND, lambda: came.append("kept"))
    later(clock, SECOND, lambda: came.append("cancelled"))()
    clock.advance(SECOND - 1)
    assert came == []
    clock.advance(1)
    assert came == ["kept"]
