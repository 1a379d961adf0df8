from __future__ import annotations

from edge.contract.wire import dumps
from edge.protocol.pages import newest

ROWS = [{"at": 2, "name": "b"}, {"at": 3, "name": "a"}, {"at": 1, "name": "c"}]
SIZE = len(dumps(ROWS[0])) + 1


def at(row: dict[str, object]) -> int:
    return int(str(row["at"]))


def test_everything_that_fits_is_there_in_the_order_given() -> None:
    assert newest(ROWS, at, 3 * SIZE) == (ROWS, False)
    assert newest([], at, 0) == ([], False)


def test_what_is_oldest_is_left_out_first() -> None:
    assert newest(ROWS, at, 3 * SIZE - 1) == (ROWS[:2], True)
    assert newest(ROWS, at, SIZE) == (ROWS[1:2], True)
    assert newest(ROWS, at, SIZE - 1) == ([], True)
