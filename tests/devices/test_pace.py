from __future__ import annotations

import pytest

from edge.contract.limit import Limits
from edge.contract.time import SECOND
from edge.devices.pace import HEAD, PUBLISHERS, Pace
from tests.support.clock import FakeClock


def pace(clock: FakeClock) -> Pace:
    return Pace(clock, Limits({"devices.announce_octets": 10_000, "devices.announce_rate": 1_000}))


@pytest.mark.limit("devices.announce_octets")
def test_a_burst_ends_exactly_where_the_bucket_is_empty() -> None:
    clock = FakeClock()
    one = pace(clock)
    assert one.take("a", 10_000 - HEAD)
    assert not one.take("a", 0)
    assert one.take("b", 0), "another publisher has a bucket of its own"


@pytest.mark.limit("devices.announce_rate")
def test_the_bucket_fills_with_time_and_never_over_its_brim() -> None:
    clock = FakeClock()
    one = pace(clock)
    assert one.take("a", 10_000 - HEAD)
    clock.advance(SECOND)
    assert one.take("a", 1_000 - HEAD)
    assert not one.take("a", 0)
    clock.advance(3600 * SECOND)
    assert not one.take("a", 10_001 - HEAD)
    assert one.take("a", 10_000 - HEAD)


def test_only_so_many_publishers_are_remembered() -> None:
    clock = FakeClock()
    one = pace(clock)
    for number in range(PUBLISHERS + 5):
        one.take(str(number), 10)
    assert len(one._left) == PUBLISHERS
