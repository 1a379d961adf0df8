from __future__ import annotations

from edge.contract.time import SECOND
from edge.system.lag import LoopLag
from tests.support.clock import FakeClock


def test_a_loop_that_comes_on_time_has_no_lag() -> None:
    clock = FakeClock()
    lag = LoopLag(clock)
    lag.start()
    for _ in range(3):
        clock.advance(SECOND)
    assert (lag.last_us, lag.worst_us) == (0, 0)


def test_after_stop_nothing_ticks() -> None:
    clock = FakeClock()
    lag = LoopLag(clock)
    lag.start()
    lag.stop()
    clock.advance(5 * SECOND)
    assert lag.worst_us == 0
