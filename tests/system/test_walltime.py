"""When a wall clock is believed."""

from __future__ import annotations

import pytest

from edge.contract.time import SECOND
from edge.system.walltime import BUILD_US, DAY, UNSURE_US, YEAR, Belief, Reading, judge, read_system

FLOOR = BUILD_US
MONO = 100 * SECOND


def test_a_synchronised_clock_above_the_floor_is_sure() -> None:
    belief = judge(Reading(FLOOR + DAY, 2_000, True), MONO, FLOOR)
    assert belief == Belief(FLOOR + DAY - MONO, 2_000, True)


def test_an_unsynchronised_clock_is_a_guess() -> None:
    assert judge(Reading(FLOOR + DAY, 0, False), MONO, FLOOR) == Belief(FLOOR + DAY - MONO, UNSURE_US, False)


@pytest.mark.parametrize("synchronised", [True, False])
def test_a_clock_below_the_floor_is_not_believed(synchronised: bool) -> None:
    assert judge(Reading(0, 2_000, synchronised), MONO, FLOOR) == Belief(FLOOR - MONO, UNSURE_US, False)


def test_a_jump_above_a_year_needs_a_second_source_that_agrees() -> None:
    far = FLOOR + 2 * YEAR
    assert not judge(Reading(far, 2_000, True), MONO, FLOOR).sure
    assert not judge(Reading(far, 2_000, True, rtc_us=far + 2 * DAY), MONO, FLOOR).sure
    assert judge(Reading(far, 2_000, True, rtc_us=far + DAY), MONO, FLOOR).sure
    assert judge(Reading(far, 2_000, True), MONO, FLOOR, (far - DAY,)).sure
    assert judge(Reading(FLOOR + YEAR, 2_000, True), MONO, FLOOR).sure


def test_the_system_can_always_be_read() -> None:
    reading = read_system()
    assert reading.wall_us > 0
    assert reading.uncertainty_us > 0
