"""One completion after several."""

from __future__ import annotations

from edge.contract.bus import after


def test_done_follows_the_last_completion_with_the_first_error() -> None:
    told: list[object] = []
    one = after(3, told.append)
    first, second = OSError("first"), OSError("second")
    one(None)
    one(first)
    assert told == []
    one(second)
    assert told == [first]


def test_with_nothing_to_wait_for_it_is_done_at_once() -> None:
    told: list[object] = []
    after(0, told.append)
    assert told == [None]
