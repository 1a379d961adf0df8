"""Waits grow by cause, are drawn below their curve, and start anew after something worked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.contract.time import SECOND
from edge.protocol.backoff import LEAST_US, Backoff, Curve


def highest() -> float:
    return 1.0


def test_waits_double_from_one_second_to_sixty() -> None:
    backoff = Backoff({}, highest)
    waits = [backoff.failed("refused") // SECOND for _ in range(9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (backoff.cause, backoff.failures) == ("refused", 9)


def test_a_cause_has_its_own_curve() -> None:
    backoff = Backoff({"login": Curve(15, 300)}, highest)
    assert [backoff.failed("login") // SECOND for _ in range(6)] == [15, 30, 60, 120, 240, 300]


def test_another_cause_starts_its_own_curve() -> None:
    backoff = Backoff({}, highest)
    assert [backoff.failed(one) // SECOND for one in ("a", "a", "a", "b", "a")] == [1, 2, 4, 1, 1]
    assert backoff.totals == {"a": 4, "b": 1}


def test_after_something_worked_the_first_wait_is_short_again() -> None:
    backoff = Backoff({}, highest)
    for _ in range(5):
        backoff.failed("lost")
    backoff.well()
    assert (backoff.cause, backoff.failures) == ("", 0)
    assert backoff.failed("lost") == SECOND


@given(st.floats(0, 1), st.integers(1, 200))
def test_a_wait_is_never_above_its_curve_and_never_nothing(drawn: float, times: int) -> None:
    backoff = Backoff({}, lambda: drawn)
    for _ in range(times):
        wait = backoff.failed("lost")
    assert LEAST_US <= wait <= 60 * SECOND


def test_the_whole_range_is_drawn_from() -> None:
    numbers = iter(range(100))
    backoff = Backoff({"x": Curve(60, 60)}, lambda: next(numbers) / 99)
    waits = [backoff.failed("x") for _ in range(100)]
    assert (waits[0], waits[-1]) == (LEAST_US, 60 * SECOND)
    assert len(set(waits)) == 100
